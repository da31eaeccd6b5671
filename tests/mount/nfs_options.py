# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is refused of nfs:// before a server is asked, or because there is none: one sentence, and
exit status 1. tests/nfs has the servers."""
import os
import socket
import subprocess

from common import MODE, SHADEFS, run_tests, scratch

point = os.path.join(scratch, "point")
os.mkdir(point)


def refuse(source, options, *parts):
    done = subprocess.run([SHADEFS, "-f", "-o", f"mode={MODE},capacity=16M{options}", source, point],
                          capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and len(lines) == 1 and lines[0].startswith("shadefs: "), (source, options, done)
    assert all(part in lines[0] for part in parts), (parts, lines)


def options_of_nfs_need_it():
    for option in ("uid=1", "gid=1", "nfsport=2049", "mountport=20048", "connections=2"):
        refuse(scratch, "," + option, option.split("=")[0], "nfs://SERVER/EXPORT")


def values():
    refuse("nfs://server/export", ",connections=0", "connections", "1 to 64")
    refuse("nfs://server/export", ",connections=65", "connections", "1 to 64")
    refuse("nfs://server/export", ",nfsport=0", "nfsport", "65535")
    refuse("nfs://server/export", ",mountport=65536", "mountport", "65535")
    refuse("nfs://server/export", ",uid=root", "uid", "'root'")
    refuse("nfs://server/export", ",gid=4294967296", "gid")
    refuse("nfs://server/export", ",deadline=0.0009", "deadline", "0.001")
    refuse("nfs://server:2050/export", ",nfsport=2051", "nfsport", "2050")


def urls():
    refuse("nfs://", "", "no server")
    refuse("nfs://server", "", "no export")
    refuse("nfs://server/a/../b", "", "..")
    refuse("nfs://fe80::1/export", "", "brackets")


def nobody_listens():
    """A port that is bound and does not listen refuses every connection, and is nobody else's."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        refuse("nfs://127.0.0.1/export", f",mountport={port}", "nfs://127.0.0.1/export", f"port {port}", "refused")


def nobody_answers():
    """A server that accepts and says nothing: the deadline bounds the wait."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        refuse("nfs://127.0.0.1/export", f",deadline=1,mountport={port}", f"port {port}", "timed out")


def a_server_that_talks_nonsense():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = subprocess.Popen([SHADEFS, "-f", "-o", f"mode={MODE},capacity=16M,deadline=5,mountport={port}",
                                 "nfs://127.0.0.1/export", point], stderr=subprocess.PIPE, text=True)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            said = done.communicate(timeout=60)[1]
        assert done.returncode == 1 and f"port {port}" in said and len(said.splitlines()) == 1, said


run_tests([options_of_nfs_need_it, values, urls, nobody_listens, nobody_answers, a_server_that_talks_nonsense])
