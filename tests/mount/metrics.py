# SPDX-License-Identifier: LGPL-2.1-or-later
"""`metrics` is `stats` in a form that two parsers of others take: promtool, which reads the text
format of Prometheus and has opinions on names, and an OpenMetrics parser."""
import json
import shutil
import subprocess

from common import MODE, Shade, make_tree, read, run_tests, skip, wait_until

# Debian's Python has Debian's packages; another one may come first in PATH.
PYTHON = "/usr/bin/python3"
PARSER = """
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
print(json.dumps([(family.name, family.type, family.documentation,
                   [(sample.name, sample.labels, sample.value) for sample in family.samples])
                  for family in text_string_to_metric_families(sys.stdin.read())]))
"""
if subprocess.run([PYTHON, "-c", "import prometheus_client"], stderr=subprocess.DEVNULL,
                  check=False).returncode:
    skip("Debian's package python3-prometheus-client is missing")
if not shutil.which("promtool"):
    skip("promtool is missing")
UNITS = {"_ms": 1e3, "_us": 1e6}


def promtool(text):
    """None, or what it says against it."""
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                          text=True, timeout=60)
    return None if done.returncode == 0 else done.stdout + done.stderr


def openmetrics(text):
    """What the parser makes of it, or None: it refuses."""
    done = subprocess.run([PYTHON, "-c", PARSER], input=text, capture_output=True, text=True,
                          timeout=60)
    return None if done.returncode else json.loads(done.stdout)


def check(fs):
    """Both take it, and it says what `stats` says. Returns how many figures it has."""
    stats = fs.stats()
    text = read(fs.at(".shade", "metrics")).decode()
    assert promtool(text) is None, promtool(text)
    values = {}
    for name, kind, documentation, samples in openmetrics(text):
        assert documentation and kind in ("gauge", "unknown"), (name, kind, documentation)
        assert (kind == "unknown") == name.endswith("_total"), (name, kind)
        if name == "shadefs_info":
            assert [labels for _, labels, _ in samples] == [{"policy": "shade", "mode": MODE}], samples
        for sample, labels, value in samples:
            values[sample, labels.get("node")] = value
    for key, value in stats.items():
        if key in ("mode", "policy"):
            continue
        name, node, divisor = key, None, UNITS.get(key[-3:])
        if key.startswith("tier_node_"):
            node, _, what = key[len("tier_node_"):].rpartition("_")
            name = "tier_node_" + what
        name = f"shadefs_{name[:-3]}_seconds" if divisor else f"shadefs_{name}"
        found = values.get((name, node), values.get((name + "_total", node)))
        assert found is not None, f"{key} is not in\n{text}"
        if key != "predict_cpu_ms":  # which goes on
            assert abs(found - value / (divisor or 1)) < 1e-12 * max(1, abs(value)), \
                (key, found, value)
    return len(values)


def a_mount():
    root, contents = make_tree(20)
    fs = Shade(root, capacity="8M")
    for path in contents:
        read(fs.at(path))
    wait_until(lambda: fs.stats()["accesses"] == 20, "counted")
    fs.settle()
    assert check(fs) >= 45
    fs.end()


def a_mount_with_a_tier():
    root, _ = make_tree(2)
    fs = Shade(root, capacity="8M", tier="redis://127.0.0.1:1", volume="v")
    assert check(fs) >= 55
    fs.end()


def the_checks_can_fail():
    assert "info" in promtool("# TYPE shadefs info\nshadefs_info 1\n")
    assert "help" in promtool("# TYPE a gauge\na 1\n")
    assert openmetrics("# HELP a x\n# TYPE a gauge\na 1\n# EOF\n")
    assert openmetrics("# HELP a_total x\n# TYPE a_total counter\na_total 1\n# EOF\n") is None


run_tests([a_mount, a_mount_with_a_tier, the_checks_can_fail])
