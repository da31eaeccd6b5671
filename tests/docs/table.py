# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands of the documents that documents.py does not run itself, as blocks.key_of() calls
them: which test does what they say, or one sentence that says why none can. A test's name is one of
`meson test --list`."""

COVERED = {
    "demo": ["scripts/run"],
    "install": ["meson setup build-usr --prefix=/usr", "ninja -C build-usr install",
                "meson install", "meson setup", "pkg-config --cflags --libs libshade"],
    "units": ["packaging/shadefs-unit", "shadefs-unit --mount"],
    "golden": ["meson test -C build golden",
               "python3 tests/sim/golden.py build/sim/shade-sim tests/data/golden.trace "
               "tests/data/golden.json --update"],
    "command": ["shade-sim run --nodes"],
    "score_command": ["shade-score order"],
    "fuzz_manifest": ["build/tests/fuzz/NAME-fuzz SEED ROUNDS"],
    "client_top": ["shadectl top"],
    "client_report": ["shadectl report"],
    "mount_ctl_native": ["shadectl rescan", "shadectl capacity"],
    "mount_helper_native": ["umount /mnt/imagenet"],
    "mount_jobs_native": ["rmdir MNT/.shade/jobs/NAME"],
    "mount_upgrade_native": ["shadectl upgrade"],
    "mount_stats_native": ["echo 2 > /proc/sys/vm/drop_caches"],
    "mount_model_native": [
        "python3 tests/mount/model.py build/fs/shadefs build/tests/slowfs/slowfs "
        "build/client/shadectl build/tests/model/model --seconds 3600"],
    "nfs_source_native": [
        "shadefs -o capacity=64G nfs://server/export/imagenet /mnt/imagenet",
        "shadefs -o uid=1234,gid=1234,allow_other nfs://server/export/imagenet /mnt/imagenet"],
    "python_others": [
        "python3 -m shade run -m torch.distributed.run --nproc_per_node 2 train.py",
        "python3 -m torch.distributed.run"],
}

CANNOT = {
    "It runs all tests, this one among them, for three quarters of an hour.":
        ["scripts/test", "meson test -C build", "meson test", "meson test -C build --suite unit",
         "meson test -C build --suite lint", "meson test --suite bench"],
    "It installs packages from Debian's archive, and a test has no network.":
        ["scripts/deps test", "scripts/deps bench", "scripts/deps nfs",
         "apt-get install python3-torch python3-torchvision",
         "apt-get install redis-server redis-tools",
         "apt-get install -y --no-install-recommends nfs-ganesha nfs-ganesha-vfs rpcbind iproute2"],
    "This test runs in what it builds, which takes minutes.":
        ["meson setup build -Dwerror=true && ninja -C build"],
    "It builds with libFuzzer and runs for an hour or more.":
        ["scripts/fuzz", "scripts/fuzz 3600 manifest state"],
    "This kernel has no NFS client; the test nfs mounts in a guest that has one.":
        ["mount -t nfs -o ro,vers=3,nconnect=4 storage:/export/imagenet /nfs/imagenet",
         "mount -t nfs -o ro,vers=3,nolock,nconnect=8,rsize=1048576,actimeo=600,nocto "
         "server:/export /nfs"],
    "It needs one more machine; the test tier_cluster has mounts follow slots that move.":
        ["redis-cli --user admin --cluster add-node NEW OLD"],
    "It needs four machines; the test python_machines has four mounts and networks instead.":
        ["torchrun --nnodes 4 --node_rank N --nproc_per_node 2 --master_addr 10.0.0.1 "
         "--master_port 29500 -m shade run --mount /mnt/imagenet --mode pads --rep 3 train.py "
         "/mnt/imagenet/train"],
    "systemd is not init here; the test units reads what is written for it.":
        ["systemctl disable --now redis-server", "systemctl daemon-reload",
         "systemctl enable --now shadefs@imagenet", "systemctl reload shadefs@imagenet",
         "systemctl restart shadefs@imagenet", "systemctl kill -s KILL shadefs@imagenet",
         "journalctl -t shadefs"],
    "It never ends, and repeats a command that is run.":
        ["while sleep 15; do shadefs-metrics /mnt/imagenet imagenet; done"],
    "It needs a server that answers, with nothing of ours in it.":
        ["showmount -e server", "rpcinfo -p server"],
    "It needs Docker; the test python_training binds the same folders.":
        ["docker run -v /mnt/data:/mnt/data:ro", "docker run -v /mnt/data/train:/data:ro",
         "docker run -v /mnt/data/train:/data:ro -v /mnt/data/.shade:/shade -e "
         "SHADE_CONTROL=/shade"],
    "It is the reader's own file and decision.":
        ["chmod -R o-rwx", "cp -a", "grep hitting train.log"],
    "It is a setting of the kernel for all files, and only told to be of little use.":
        ["echo 0 > /sys/class/bdi/$(mountpoint -d /run/shadefs/PID/files)/read_ahead_kb"],
    "Debian's torchrun does not run without the three options of the command that is run.":
        ["torchrun --nproc_per_node 2 -m shade run train.py"],
}
