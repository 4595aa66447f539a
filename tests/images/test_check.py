"""The element tree is well formed; and where it is not, the check says so."""

from __future__ import annotations

import shutil

import pytest

from images import check, ramdisk


@pytest.fixture
def elements(tmp_path, monkeypatch):
    """A copy of the tree that a test may break."""
    copy = tmp_path / "elements"
    shutil.copytree(ramdisk.ELEMENTS, copy)
    monkeypatch.setattr(check, "ELEMENTS", copy)
    monkeypatch.setattr(ramdisk, "ELEMENTS", copy)
    return copy


def test_the_tree_has_no_fault():
    assert list(check.find_faults()) == []


def test_the_production_image_is_the_test_image_without_its_pruning():
    production, test = ramdisk.PROFILES["production"], ramdisk.PROFILES["test"]

    assert set(test.elements) - set(production.elements) == {"provisioner-test"}
    assert "provisioner-test" not in check.resolve_elements(production.elements)
    assert "ironic-python-agent-ramdisk" in check.resolve_elements(production.elements)


def test_a_dependency_that_is_no_element_is_named(elements):
    (elements / "provisioner-site/element-deps").write_text("no-such-element\n")

    assert any("no-such-element" in fault for fault in check.find_faults())


def test_a_script_that_is_not_executable_is_named(elements):
    (elements / "provisioner-site/install.d/60-provisioner-site").chmod(0o644)

    assert any("60-provisioner-site: must be executable" in f for f in check.find_faults())


@pytest.mark.parametrize(
    ("line", "word"), [("if true; then", "syntax"), ("rm -rf $unset_and_unquoted", "SC2086")]
)
def test_a_script_that_bash_or_shellcheck_objects_to_is_named(elements, line, word):
    script = elements / "provisioner-site/install.d/60-provisioner-site"
    script.write_text(f"{script.read_text()}{line}\n")

    assert any("60-provisioner-site" in f and word in f for f in check.find_faults())


def test_a_source_that_would_be_cloned_from_git_is_named(elements):
    line = "tools git /tmp/tools https://example.org/tools\n"
    (elements / "provisioner-site/source-repository-tools").write_text(line)

    assert "provisioner-site: tools would be fetched from git" in set(check.find_faults())


def test_a_package_that_is_not_locked_is_named(elements):
    (elements / "provisioner-diagnostics/package-installs.yaml").write_text("no-such-package:\n")

    assert any("no-such-package is not in debian.lock" in f for f in check.find_faults())


def test_two_hooks_of_one_name_are_named(elements):
    twin = elements / "provisioner-agent/install.d/60-provisioner-site"
    shutil.copy(elements / "provisioner-site/install.d/60-provisioner-site", twin)

    assert any("has a hook of this name" in f for f in check.find_faults())


def test_a_unit_with_a_typing_error_is_named(elements):
    unit = elements / "provisioner-trust/static/etc/systemd/system/provisioner-trust.service"
    unit.write_text(unit.read_text().replace("Type=oneshot", "Type oneshot"))

    assert any("provisioner-trust.service" in f for f in check.find_faults())
