# SPDX-License-Identifier: LGPL-2.1-or-later
"""A daemon that dies is taken over, and where nobody can take over, readers get errors and nothing is
left."""
import os
import signal
import subprocess
import tempfile
import time

from common import (MODE, SHADECTL, SHADEFS, ServiceManager, Shade, Slow, children, daemons, is_mounted,
                    make_tree, raises, read, run_tests, running, scratch, wait_until)

KILLED = "another one takes over"  # it may not be reaped by then, and its signal unknown


def kill_daemon(fs):
    """Returns when another one has answered."""
    dead, before = fs.daemon(), fs.stats()["takeovers"]
    time.sleep(0.5)  # until the kernel has told that the file was closed
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{dead}"), "it is dead")
    assert fs.stats()["takeovers"] == before + 1, fs.stats()
    assert fs.daemon() != dead


def next_daemon(fs, seen):
    """As soon as it is there. None: the supervisor has ended."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for pid in daemons(fs.process.pid):
            if pid not in seen:
                return pid
        if fs.process.poll() is not None:
            return None
    raise AssertionError(f"no successor of {seen}: {fs.read_log()}")


def nothing_is_left(fs):
    assert not is_mounted(fs.path), "still mounted"
    assert not os.path.exists(f"/run/shadefs/{fs.process.pid}"), "a place was left"


def has_given_up(fs, why):
    assert fs.process.wait(60) == 1
    assert why in fs.read_log(), fs.read_log()
    nothing_is_left(fs)
    running.remove(fs)


def can_repeat(fs):
    if fs.stats()["takeover_possible"]:
        return True
    print("   this kernel cannot repeat requests")
    return False


def the_killed_daemon_is_taken_over():
    root, _ = make_tree(5)
    fs = Shade(root, capacity="8M")
    stats = fs.stats()
    assert stats["takeovers"] == 0, stats
    if not can_repeat(fs):
        fs.end()
        return
    names = sorted(os.listdir(fs.at(".shade")))
    for number in range(1, 3):
        kill_daemon(fs)
        assert sorted(os.listdir(fs.at(".shade"))) == names
        assert fs.read_log().count(KILLED) == number, fs.read_log()
    if SHADECTL:
        done = subprocess.run([SHADECTL, "status", fs.path], capture_output=True, text=True)
        assert done.returncode == 0 and "2 daemons died and were taken over" in done.stdout, done
    fs.end()
    nothing_is_left(fs)


def a_request_waits_for_the_successor():
    """Nobody serves while the supervisor is stopped."""
    root, _ = make_tree(5)
    fs = Shade(root, capacity="8M")
    if can_repeat(fs):
        time.sleep(0.5)
        fs.process.send_signal(signal.SIGSTOP)
        os.kill(fs.daemon(), signal.SIGKILL)
        reader = subprocess.Popen(["cat", fs.at(".shade", "stats")], stdout=subprocess.PIPE,
                                  text=True)
        time.sleep(0.5)
        assert reader.poll() is None, "somebody has answered"
        fs.process.send_signal(signal.SIGCONT)
        text = reader.communicate(timeout=60)[0]
        assert reader.returncode == 0 and "takeovers 1\n" in text, text
    fs.end()


def control_that_was_mounted_again_is_taken_over():
    if MODE != "native":
        return
    root, _ = make_tree(5)
    fs = Shade(root, capacity="8M")
    if can_repeat(fs):
        for _ in range(2):
            subprocess.run(["umount", fs.at(".shade")], check=True, timeout=60)
            wait_until(lambda: is_mounted(fs.at(".shade")), "control is back")
            wait_until(fs.is_ready, "control answers")
            kill_daemon(fs)
    fs.end()
    nothing_is_left(fs)


def what_is_unmounted_meanwhile_ends():
    root, _ = make_tree(5)
    fs = Shade(root, capacity="8M")
    if not can_repeat(fs):
        fs.end()
        return
    fs.process.send_signal(signal.SIGSTOP)
    os.kill(fs.daemon(), signal.SIGKILL)
    subprocess.run(["umount", "-l", fs.path], check=True, timeout=60)
    fs.process.send_signal(signal.SIGCONT)
    assert fs.process.wait(60) == 0, fs.read_log()
    nothing_is_left(fs)
    running.remove(fs)


def three_deaths_are_too_many():
    root, _ = make_tree(5)
    fs = Shade(root, capacity="8M")
    if not can_repeat(fs):
        os.kill(fs.daemon(), signal.SIGKILL)
        has_given_up(fs, "this kernel cannot repeat requests")
        return
    reader = os.open(fs.path, os.O_RDONLY)
    seen = set()
    while (pid := next_daemon(fs, seen)) is not None:
        os.kill(pid, signal.SIGKILL)
        seen.add(pid)
    assert 3 <= len(seen) <= 4, seen  # the first one may have been there for more than a second
    has_given_up(fs, "several times within a few seconds")
    raises((107, 103, 5, 2), lambda: os.stat("nonexistent", dir_fd=reader))
    os.close(reader)


def threads_of(pid):
    """Their names."""
    names = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm") as file:
            names.append(file.read().strip())
    return names


def a_successor_that_cannot_begin_is_given_up():
    root, _ = make_tree(5)
    fs = Shade(root, capacity="8M")
    if not can_repeat(fs):
        fs.end()
        return
    seen = [fs.daemon()]
    while True:
        os.kill(seen[-1], signal.SIGKILL)
        seen.append(next_daemon(fs, seen))
        os.kill(seen[-1], signal.SIGSTOP)
        if "shade-signals" not in threads_of(seen[-1]):
            break  # it is stopped before it was ready
        os.kill(seen[-1], signal.SIGCONT)
        time.sleep(1.5)  # or it would be one that did not last
    has_given_up(fs, "not taken over in time")


def a_source_that_hangs_keeps_no_successor():
    """What is known and what is resident are there all the same."""
    root, contents = make_tree(5)
    slow = Slow(root)
    fs = Shade(slow.path, capacity="8M")
    for path, data in contents.items():
        assert read(fs.at(path)) == data, path
    if can_repeat(fs):
        slow.pause()
        try:
            kill_daemon(fs)
            for path, data in contents.items():
                assert read(fs.at(path)) == data, path
        finally:
            slow.resume()
    fs.end()
    slow.end()


def who_ends_by_itself_is_not_taken_over():
    root, _ = make_tree(5)
    for how in (signal.SIGTERM, signal.SIGINT):
        fs = Shade(root, capacity="8M")
        os.kill(fs.daemon(), how)
        assert fs.process.wait(60) == 0, fs.read_log()
        nothing_is_left(fs)
        running.remove(fs)


def in_the_background():
    root, _ = make_tree(5)
    point = tempfile.mkdtemp(dir=scratch)
    subprocess.run([SHADEFS, "-o", f"mode={MODE},capacity=8M", root, point], check=True,
                   stdout=subprocess.DEVNULL, timeout=60)
    with open(os.path.join(point, ".shade", "stats")) as file:
        possible = "takeover_possible 1\n" in file.read()
    (supervisor,) = (pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                     if is_supervisor(pid, point))
    for pid in children(supervisor) if possible else ():
        with open(f"/proc/{pid}/comm") as file:
            if file.read() == "shadefs-daemon\n":
                os.kill(pid, signal.SIGKILL)
    if possible:
        wait_until(lambda: "takeovers 1\n" in open(os.path.join(point, ".shade", "stats")).read(),
                   "taken over")
    os.kill(supervisor, signal.SIGTERM)
    wait_until(lambda: not os.path.exists(f"/proc/{supervisor}"), "ended")
    assert not is_mounted(point)


def is_supervisor(pid, point):
    try:
        with open(f"/proc/{pid}/cmdline") as command, open(f"/proc/{pid}/comm") as name:
            return name.read() == "shadefs\n" and point in command.read()
    except OSError:
        return False


def the_service_manager_is_told_by_the_main_process():
    root, _ = make_tree(5)
    manager = ServiceManager()
    fs = Shade(root, capacity="8M")
    manager.begun()
    text, pid = manager.told()
    assert text.startswith("READY=1\nSTATUS=") and "capacity 8.0 MiB" in text, text
    assert pid == fs.process.pid, "systemd hears nobody else"
    if can_repeat(fs):
        kill_daemon(fs)
        text, pid = manager.told()
        assert text.startswith("STATUS=taken over 1 times; ") and pid == fs.process.pid, text
    fs.end()
    assert manager.told() == ("STOPPING=1", fs.process.pid)
    manager.socket.close()


run_tests([the_killed_daemon_is_taken_over, a_request_waits_for_the_successor,
           control_that_was_mounted_again_is_taken_over, what_is_unmounted_meanwhile_ends,
           three_deaths_are_too_many, a_successor_that_cannot_begin_is_given_up,
           a_source_that_hangs_keeps_no_successor, who_ends_by_itself_is_not_taken_over,
           in_the_background, the_service_manager_is_told_by_the_main_process])
