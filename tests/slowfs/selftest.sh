#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Checks that slowfs does what other tests rely on: that it shows the source as it is, that
# it is as slow as it was told to be (and no slower: requests wait side by side), that each
# fault strikes, and that nothing it does can keep a reader, a mount or itself alive.
#
# usage: selftest.sh SLOWFS [TEST...]
# Exit: 0 good, 1 bad, 77 cannot mount here.
#
# shellcheck disable=SC2317 # all is called by name
set -u
umask 022
export LC_ALL=C

slowfs=$(realpath -e "${1:?usage: selftest.sh SLOWFS [TEST...]}") || exit 1
shift
dir=$(mktemp -d "${TMPDIR:-/tmp}/slowfs.XXXXXX") || exit 1
src=$dir/src mnt=$dir/mnt log=$dir/log
server='' guard='' readers=() all=() failed=0 checks=0

# --- tools -------------------------------------------------------------------------------

# Also if nobody answers there.
mounted() { grep -q " $mnt fuse" /proc/self/mounts; }

detach() {
	if [ "$(id -u)" = 0 ]; then
		umount -l "$mnt"
	else
		fusermount3 -u -z "$mnt"
	fi
}

is_ours() { [ -n "$1" ] && grep -qs "^PPid:.$$\$" "/proc/$1/status"; }
is_slowfs() { [ -n "$1" ] && [ "/proc/$1/exe" -ef "$slowfs" ]; }

# A server that is killed aborts the connection, which frees any reader. Ids may have been
# given to others since.
cleanup() {
	local pid

	is_slowfs "$server" && kill -9 "$server"
	is_ours "$guard" && kill "$guard"
	for pid in "${readers[@]}"; do
		is_ours "$pid" && kill -9 "$pid"
	done
	while mounted; do
		detach || break
	done
	wait
	rm -rf --one-file-system "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

fail() {
	echo "FAIL ${FUNCNAME[-2]}: $*"
	failed=1
}

# expect WHAT COMMAND...: the command must succeed.
expect() {
	local what=$1

	shift
	checks=$((checks + 1))
	"$@" || fail "$what ($*)"
}

not() { ! "$@"; }
same() { [ "$1" = "$2" ]; }

# A client that is bounded, should slowfs hang when it must not.
client() { timeout -k 5 30 "$@"; }

# refuses ERRNO-TEXT COMMAND...: the command must fail for that reason.
refuses() {
	local why=$1 said

	shift
	said=$({ client "$@" >/dev/null; } 2>&1) && return 1
	[[ $said == *"$why"* ]]
}

reads_well() { client cmp -s "$src/$1" "$mnt/$1"; }

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# took_ms COMMAND...: prints how long it took.
took_ms() {
	local start

	start=$(now_ms)
	"$@" >/dev/null
	echo $(($(now_ms) - start))
}

# takes LOW HIGH COMMAND...: never less than LOW ms, and no more than HIGH unless the machine had
# other things to do, which it does not have every time.
takes() {
	local low=$1 high=$2 tries ms

	shift 2
	for ((tries = 0; tries < 10; tries++)); do
		ms=$(took_ms "$@")
		[ "$ms" -ge "$low" ] || break
		[ "$ms" -gt "$high" ] || return 0
	done
	echo "took $ms ms" >&2
	return 1
}

# soon COMMAND...: it must become true within 10 s.
soon() {
	local tries

	for ((tries = 0; tries < 500; tries++)); do
		"$@" && return 0
		sleep 0.02
	done
	return 1
}

# All lines in one write(), which the shell's own printf would not do.
control() {
	printf '%s\n' "$@" >"$dir/lines"
	client dd if="$dir/lines" of="$mnt/.slowfs" bs=64K conv=notrunc status=none 2>/dev/null
}

status() { client cat "$mnt/.slowfs"; }

# value NAME [PATH]: a counter or a setting.
value() {
	status | key="$1${2:+ $2}" awk '{ v = $NF; sub(/ [^ ]*$/, "") } $0 == ENVIRON["key"] { print v }'
}

is() { same "$(value "${@:1:$#-1}")" "${!#}"; }

# reader COMMAND...: starts it in the background, as $reader.
reader() {
	"$@" >"$dir/out" 2>"$dir/err" &
	reader=$!
	readers+=("$reader")
	disown "$reader" # the shell need not say that it was killed
}

# Zombies count as ended: a daemon is reaped by somebody else.
ended() { ! grep -qs '^State:.[^ZX]' "/proc/$1/status"; }

# The guard ends a server, and so the test, that hangs for good.
start() {
	timeout -s KILL 300 "$slowfs" -f "$@" "$src" "$mnt" 2>>"$log" &
	guard=$!
	soon client test -e "$mnt/.slowfs" && server=$(value pid) && [ -n "$server" ] && return
	cat "$log"
	grep -q 'mount failed: Operation not permitted' "$log" && exit 77
	echo "slowfs did not start"
	exit 1
}

# The server must have ended well by itself, or will in a moment, without a word.
server_ends() {
	local status=0

	expect "slowfs ends" soon ended "$server"
	ended "$server" || kill -9 "$server" # fails the next check
	wait "$guard" || status=$?
	server='' guard=''
	expect "slowfs ends well" same "$status" 0
	expect "nothing is mounted any more" not mounted
	if [ -s "$log" ]; then
		fail "slowfs said:"
		head -n 100 "$log"
		: >"$log"
	fi
}

stop() {
	kill "$server"
	server_ends
}

make_source() {
	mkdir -p "$src/dir/deeper" "$src/many" "$mnt"
	yes AB | tr -d '\n' | head -c 100000 >"$src/ab"
	head -c 4194304 /dev/urandom >"$src/random"
	echo hello >"$src/dir/deeper/hello"
	: >"$src/empty"
	echo secret >"$src/modes"
	chmod 4711 "$src/modes"
	[ "$(id -u)" = 0 ] && chown 123:456 "$src/modes"
	ln "$src/modes" "$src/dir/hardlink"
	ln -s dir/deeper/hello "$src/symlink"
	ln -s nowhere "$src/dangling"
	mkfifo "$src/fifo"
	echo odd >"$src/new"$'\n'"line"
	echo odd >"$src/not"$'\xff\xfe'"utf8"
	echo odd >"$src/two words \\ back"
	touch -d '2001-02-03 04:05:06.789' "$src/ab" "$src/dir"
	(cd "$src/many" && seq 3000 | xargs touch)
}

# --- the source shows through --------------------------------------------------------------

listing() {
	(cd "$1" && find . -mindepth 1 -printf '%P %i %s %m %y %n %U %G %T@ %C@ %l\0' | sort -z)
}

test_passthrough() {
	start
	listing "$src" >"$dir/want"
	client bash -c "$(declare -f listing); listing '$mnt'" >"$dir/have"
	expect "the source has many files" test "$(tr -cd '\0' <"$dir/want" | wc -c)" -gt 3000
	expect "names and attributes are the source's" cmp "$dir/want" "$dir/have"
	expect "contents are the source's" client diff -r --no-dereference \
		-x fifo "$src" "$mnt"
	expect "links lead on" same "$(client cat "$mnt/symlink")" hello
	expect "the size of the file system is the source's" \
		same "$(stat -f -c '%b %S' "$mnt")" "$(stat -f -c '%b %S' "$src")"
	expect "the control file is not listed" not grep -q slowfs "$dir/have"
	expect "no file, no answer" refuses 'No such file' cat "$mnt/absent"
	expect "no descriptor is kept for a file" \
		test "$(find "/proc/$server/fd" | wc -l)" -lt 40
	stop
}

test_read_only() {
	start
	listing "$src" >"$dir/want"
	expect "no write" refuses Read-only dd if=/dev/null of="$mnt/ab" conv=notrunc
	expect "no truncation" refuses Read-only truncate -s 1 "$mnt/ab"
	expect "no new file" refuses Read-only touch "$mnt/new"
	expect "no new times" refuses Read-only touch "$mnt/ab"
	expect "no new mode" refuses Read-only chmod 600 "$mnt/ab"
	expect "no new directory" refuses Read-only mkdir "$mnt/new"
	expect "no new fifo" refuses Read-only mkfifo "$mnt/new"
	expect "no new link" refuses Read-only ln "$mnt/ab" "$mnt/new"
	expect "no new symlink" refuses Read-only ln -s ab "$mnt/new"
	expect "no removal" refuses Read-only rm -f "$mnt/ab"
	expect "no removal of directories" refuses Read-only rmdir "$mnt/dir/deeper"
	expect "no renaming" refuses Read-only mv "$mnt/ab" "$mnt/new"
	listing "$src" >"$dir/have"
	expect "the source is as before" cmp "$dir/want" "$dir/have"
	stop
}

# From inside the mount, since nobody may not walk there.
inside() { (cd "$mnt" && "$@"); }
as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)

test_other_users() {
	if [ "$(id -u)" != 0 ] || ! command -v setpriv >/dev/null; then
		echo "other users: cannot become one"
		return
	fi
	start
	expect "others stay out" inside refuses 'Permission denied' "${as_nobody[@]}" cat ab
	stop
	start -o allow_other
	expect "others come in" same "$(inside client "${as_nobody[@]}" cat dir/deeper/hello)" hello
	expect "by the mode" inside refuses 'Permission denied' \
		"${as_nobody[@]}" cat modes
	expect "not to the control file" inside refuses 'Permission denied' \
		"${as_nobody[@]}" cat .slowfs
	stop
}

test_changing_source() {
	local fd seen

	start -o timeout=60
	echo one >"$src/swap"
	expect "the first content" same "$(client cat "$mnt/swap")" one
	control 'set timeout 0'
	exec {fd}<"$mnt/swap"
	echo two, longer >"$src/swap.new"
	mv "$src/swap.new" "$src/swap"
	read -r seen <&"$fd"
	expect "an open file can still be read" same "$seen" one
	expect "but is stale" refuses 'Stale file handle' stat -L "/proc/$$/fd/$fd"
	exec {fd}<&-
	expect "the new content" same "$(client cat "$mnt/swap")" "two, longer"
	expect "the new inode" same "$(stat -c %i "$mnt/swap")" "$(stat -c %i "$src/swap")"
	rm "$src/swap"
	expect "gone is gone" refuses 'No such file' cat "$mnt/swap"
	stop
}

# --- counters and settings -------------------------------------------------------------------

test_counters() {
	local before

	start
	control reset
	reads_well ab && reads_well ab && reads_well dir/deeper/hello
	expect "each open counts" is opens 3
	expect "each byte counts" is bytes 200006
	expect "each read reaches the source" test "$(value reads)" -ge 6
	expect "lookups count" test "$(value lookups)" -ge 5
	before=$(value getattrs)
	stat "$mnt" >/dev/null
	expect "getattrs count" test "$(value getattrs)" -gt "$before"
	before=$(($(value readdirs) + $(value readdirplus)))
	client find "$mnt/many" >/dev/null
	expect "readdirs count" test $(($(value readdirs) + $(value readdirplus))) -gt "$before"
	expect "readdirplus is used" test "$(value readdirplus)" -gt 0
	expect "looking does not count" same "$(status)" "$(status)"
	expect "the process id is shown" test "/proc/$(value pid)/exe" -ef "$slowfs"
	control reset
	expect "reset resets" is opens 0
	expect "reset resets all" is lookups 0
	stop
}

test_watch() {
	start
	control 'watch /dir//deeper/./hello' 'watch two words \134 back' 'watch ab'
	reads_well dir/deeper/hello && reads_well dir/deeper/hello && reads_well random
	reads_well 'two words \ back'
	expect "opens of one path" is opens dir/deeper/hello 2
	expect "reads of one path" test "$(value reads dir/deeper/hello)" -ge 2
	expect "bytes of one path" is bytes dir/deeper/hello 12
	expect "an odd path" is opens 'two\040words\040\134\040back' 1
	expect "another path" is opens ab 0
	control reset
	expect "reset" is opens dir/deeper/hello 0
	stop
}

test_settings() {
	start -o delay_us=11,read_delay_us=12,meta_delay_us=13 -o bandwidth=2K,timeout=1.5,direct_io=0
	expect "delay" is delay_us 11
	expect "read delay" is read_delay_us 12
	expect "meta delay" is meta_delay_us 13
	expect "bandwidth" is bandwidth 2048
	expect "timeout" is timeout 1.5
	expect "direct_io" is direct_io 0
	control 'set delay_us 21' 'set bandwidth 3G' 'set timeout 0'
	expect "delay anew" is delay_us 21
	expect "bandwidth anew" is bandwidth 3221225472
	expect "timeout anew" is timeout 0
	stop
}

test_timeout() {
	start -o timeout=60
	stat "$mnt/dir/deeper/hello" >/dev/null
	control reset
	stat "$mnt/dir/deeper/hello" >/dev/null
	expect "the kernel keeps names" is lookups 0
	expect "the kernel keeps attributes" is getattrs 0
	control 'set timeout 0'
	stop
	start
	stat "$mnt/dir/deeper/hello" >/dev/null
	control reset
	stat "$mnt/dir/deeper/hello" >/dev/null
	expect "by default it does not" is lookups 3
	stop
}

test_page_cache() {
	local fd

	start -o direct_io=0
	exec {fd}<"$mnt/ab"
	client cat <&"$fd" >/dev/null
	control reset
	client dd if="/proc/self/fd/$fd" of=/dev/null status=none
	expect "a further open reads again" is bytes 100000
	exec {fd}<&-
	expect "and well" reads_well ab
	stop
	start -o direct_io=0,keep_cache=1
	client cat "$mnt/ab" >/dev/null
	control reset
	client cat "$mnt/ab" >/dev/null
	expect "pages that are kept are not read again" is bytes 0
	expect "but the open is seen" is opens 1
	stop
}

test_bad_control() {
	local before line

	start -o delay_us=7
	control 'fault eio ab'
	before=$(status)
	for line in bogus set 'set delay_us' 'set delay_us ' 'set delay_us -1' 'set delay_us 1x' \
		'set delay_us 3600000001' 'set delay_us  1' 'set nothing 1' 'set bandwidth 1T' \
		'set bandwidth 99999999999G' 'set timeout x' 'set timeout nan' 'set direct_io 2' \
		fault 'fault eio' 'fault eio ' 'fault nothing ab' 'fault none ab' \
		'fault eio,count=0 ab' 'fault eio,count=x ab' 'fault eio,size=1 ab' \
		'fault hangopen,after=1 ab' 'fault eio ../ab' 'fault eio a\b' 'fault eio a\000' \
		clear 'clear ' watch 'reset all' 'watch dir/../ab'; do
		expect "'$line' is refused" not control "$line"
		expect "after good lines too" not control 'set delay_us 8' 'clear all' "$line"
	done
	expect "a wrong line is an EINVAL" refuses 'Invalid argument' \
		bash -c "echo bogus >'$mnt/.slowfs'"
	expect "nothing has changed" same "$(status)" "$before"
	expect "a good line is taken" control 'set delay_us 8' 'clear all'
	expect "and shows" not same "$(status)" "$before"
	stop
}

# --- time ------------------------------------------------------------------------------------

# in_parallel COUNT COMMAND...
in_parallel() {
	local count=$1 pids=() i

	shift
	for ((i = 0; i < count; i++)); do
		"$@" >/dev/null &
		pids+=($!)
	done
	readers+=("${pids[@]}")
	wait "${pids[@]}"
}

in_sequence() {
	local count=$1 i

	shift
	for ((i = 0; i < count; i++)); do
		"$@" >/dev/null
	done
}

open_only() { : <"$mnt/ab"; }

test_delays() {
	start
	expect "nothing is slow by default" takes 0 199 in_sequence 4 open_only
	control 'set delay_us 50000'
	expect "each open takes its time" takes 200 500 in_sequence 4 open_only
	expect "32 opens wait side by side" takes 50 800 in_parallel 32 open_only
	control 'set delay_us 0' 'set read_delay_us 50000'
	expect "each read takes its time" takes 200 500 \
		client dd if="$mnt/ab" of=/dev/null bs=25000 count=4 status=none
	control 'set read_delay_us 0' 'set meta_delay_us 50000'
	expect "each lookup takes its time" takes 150 500 stat "$mnt/dir/deeper/hello"
	expect "each readdir takes its time" takes 150 900 ls "$mnt/dir"
	expect "the control file does not" takes 0 49 status
	stop
}

read_megabyte() { dd if="$mnt/random" of=/dev/null bs=128K count=8 skip="$1" status=none; }
read_four() {
	local i pids=()

	for i in 0 8 16 24; do
		read_megabyte "$i" &
		pids+=($!)
	done
	wait "${pids[@]}"
}

test_bandwidth() {
	start -o bandwidth=2M
	expect "one reader gets 2 MiB/s" takes 400 600 read_megabyte 0
	control 'set bandwidth 4M'
	expect "four readers share 4 MiB/s" takes 800 1200 read_four
	control 'set bandwidth 0'
	expect "without a limit" takes 0 500 read_four
	control 'set bandwidth 1'
	reader read_megabyte 0
	soon not is reads 0
	control 'set bandwidth 0'
	expect "a change ends the waits of before" soon ended "$reader"
	stop
}

# by_inode DIR: its files, neighbours one after the other.
by_inode() { find "$1" -type f -printf '%i %p\n' | sort -n | cut -d ' ' -f 2; }
read_each() { client cat "$@" >/dev/null; }
read_all_at_once() { printf '%s\n' "$@" | client xargs -P 8 -n 1 cat >/dev/null; }

test_seeks() {
	local files odd=() i

	mkdir -p "$src/disk/other"
	for ((i = 0; i < 16; i++)); do
		head -c 200000 "$src/random" >"$src/disk/$i"
	done
	cp "$src/ab" "$src/disk/other/ab"
	start -o seek_us=10000
	mapfile -t files < <(by_inode "$mnt/disk" | grep -v other)
	expect "all files" same "${#files[@]}" 16
	control reset
	expect "neighbours cost one seek" takes 10 150 read_each "${files[@]}"
	control reset
	read_each "${files[@]}"
	expect "however many reads a file takes" is seeks 1
	expect "and each takes several" test "$(value reads)" -ge 32
	for ((i = 0; i < 16; i += 2)); do
		odd+=("${files[i]}")
	done
	control reset
	expect "others one each, one after the other" takes 80 500 read_each "${odd[@]}"
	control reset
	expect "and not side by side" takes 80 1000 read_all_at_once "${odd[@]}"
	control reset
	read_each "${files[3]}" "${files[4]}" "$mnt/disk/other/ab" "${files[5]}" "${files[4]}"
	expect "another directory, and back" is seeks 4
	rm "$src/disk/${files[7]##*/}"
	control reset
	read_each "${files[6]}" "${files[8]}"
	expect "who is gone is nobody's neighbour" is seeks 1
	control 'set pass_us 3000'
	read_each "${files[0]}"
	control reset
	read_each "${files[2]}"
	expect "a file is passed over sooner" is seeks 0
	read_each "${files[0]}"
	control reset
	read_each "${files[2]}" "${files[1]}" "${files[13]}"
	expect "but not backwards, nor far" is seeks 2
	control 'set seek_us 0' reset
	expect "without a cost" takes 0 150 read_each "${odd[@]}"
	expect "nothing is counted" is seeks 0
	stop
	rm -r "$src/disk"
}

# --- faults ----------------------------------------------------------------------------------

test_errors() {
	start
	control 'fault eio ab' 'fault estale dir/deeper/hello' 'fault eioopen empty' \
		'fault estaleopen symlink' 'fault eio new\012line' 'fault eioopen many'
	expect "eio" refuses 'Input/output error' cat "$mnt/ab"
	expect "eio stays" refuses 'Input/output error' cat "$mnt/ab"
	expect "estale" refuses 'Stale file handle' cat "$mnt/dir/deeper/hello"
	expect "eioopen" refuses "'$mnt/empty' for reading: Input/output error" \
		cp "$mnt/empty" "$dir/out"
	expect "eioopen of a directory" refuses 'Input/output error' ls "$mnt/many"
	expect "a name with a line end" refuses 'Input/output error' cat "$mnt/new"$'\n'line
	expect "others are well" reads_well random
	expect "a fault shows" grep -qx 'fault eio new\\012line' <(status)
	expect "faulted paths are counted" is opens ab 2
	control 'clear ab'
	expect "cleared" reads_well ab
	expect "the others are not" refuses 'Stale file handle' cat "$mnt/dir/deeper/hello"
	control 'clear all'
	expect "all cleared" client diff -r --no-dereference -x fifo "$src" "$mnt"
	expect "no fault is left" not grep -q '^fault' <(status)
	control 'fault estaleopen ab'
	expect "estaleopen" refuses 'Stale file handle' cat "$mnt/ab"
	stop
}

test_counted_errors() {
	start
	control 'fault once-eio ab' 'fault estale,count=2 random'
	expect "once" refuses 'Input/output error' cat "$mnt/ab"
	expect "not twice" reads_well ab
	expect "the first of two" refuses 'Stale file handle' cat "$mnt/random"
	expect "the rest shows" grep -qx 'fault estale,count=1 random' <(status)
	expect "the second of two" refuses 'Stale file handle' cat "$mnt/random"
	expect "not three times" reads_well random
	expect "nothing is left" not grep -q '^fault' <(status)
	control 'fault eio,after=50000 ab'
	client dd if="$mnt/ab" of="$dir/out" bs=40000 status=none 2>"$dir/err"
	expect "an error in the middle" grep -q 'Input/output error' "$dir/err"
	expect "after good reads" cmp -s "$dir/out" <(head -c 80000 "$src/ab")
	stop
}

test_short() {
	start
	control 'fault short,count=1 ab'
	client dd if="$mnt/ab" of="$dir/out" bs=40000 status=none
	expect "half a read and then the end" cmp -s "$dir/out" <(head -c 20000 "$src/ab")
	expect "not a second time" reads_well ab
	control 'fault short ab'
	client cat "$mnt/ab" >"$dir/out"
	expect "short of what there was" cmp -s "$dir/out" <(head -c 50000 "$src/ab")
	control 'clear ab'
	expect "cleared" reads_well ab
	stop
}

# Bytes XOR 0xff.
changed() { tr 'AB' '\276\275'; }

test_change() {
	local before after

	start
	before=$(stat -c '%.Y %.Z' "$mnt/ab")
	control 'fault change ab'
	expect "first, nothing has changed" same "$(stat -c '%.Y %.Z' "$mnt/ab")" "$before"
	client dd if="$mnt/ab" of="$dir/out" bs=40000 status=none
	{ head -c 40000 "$src/ab"; tail -c +40001 "$src/ab" | changed; } >"$dir/want"
	expect "replaced after the first read" cmp "$dir/out" "$dir/want"
	after=$(stat -c '%.Y %.Z' "$mnt/ab")
	expect "the first time tells" not same "${after% *}" "${before% *}"
	expect "the second too" not same "${after#* }" "${before#* }"
	client cat "$mnt/ab" >"$dir/out"
	expect "all see the new content" cmp "$dir/out" <(changed <"$src/ab")
	expect "which stays" same "$(stat -c '%.Y %.Z' "$mnt/ab")" "$after"
	control 'clear ab'
	expect "cleared" reads_well ab
	expect "the times too" same "$(stat -c '%.Y %.Z' "$mnt/ab")" "$before"
	control 'fault change,after=50001 ab'
	client dd if="$mnt/ab" of="$dir/out" bs=40000 status=none
	{ head -c 50001 "$src/ab"; tail -c +50002 "$src/ab" | changed; } >"$dir/want"
	expect "torn inside a read" cmp "$dir/out" "$dir/want"
	stop
}

# --- hanging ---------------------------------------------------------------------------------

# hang KIND: starts a reader and waits until it hangs.
hang() {
	control "fault $1 ab"
	reader client cat "$mnt/ab"
	expect "$1 hangs" soon is hung 1
	sleep 0.3
	expect "$1 goes on hanging" is hung 1
	expect "its reader waits" not ended "$reader"
}

test_hang_clear() {
	local kind

	start
	for kind in hang hangopen once-hang; do
		hang "$kind"
		expect "others are well" reads_well random
		control 'clear dir'
		expect "another path's clear does nothing" is hung 1
		control 'clear ab'
		expect "the reader goes on" soon ended "$reader"
		expect "with the content" cmp "$dir/out" "$src/ab"
		expect "nothing hangs" is hung 0
	done
	hang hang
	control 'fault eio ab'
	expect "another fault takes over" soon ended "$reader"
	expect "and strikes" grep -q 'Input/output error' "$dir/err"
	stop
}

test_hang_interrupt() {
	local kind

	start
	for kind in hang hangopen; do
		control "fault $kind ab"
		reader cat "$mnt/ab"
		expect "$kind hangs" soon is hung 1
		kill -9 "$reader"
		expect "a reader can be killed" soon ended "$reader"
		expect "nothing hangs then" soon is hung 0
	done
	control 'clear all' 'fault hang ab' reset
	# dd catches USR1 and reads again if it is told EINTR.
	reader dd if="$mnt/ab" of="$dir/copy" status=none
	expect "a read hangs" soon is reads ab 1
	sleep 0.1
	kill -USR1 "$reader"
	expect "a signal is answered" soon is reads ab 2
	expect "the reader lives" not ended "$reader"
	control 'clear all'
	expect "and ends" soon ended "$reader"
	expect "with the content" cmp "$dir/copy" "$src/ab"
	stop
}

test_hang_many() {
	local i pids=()

	start
	control 'fault hang ab'
	for ((i = 0; i < 100; i++)); do
		client cat "$mnt/ab" >/dev/null 2>&1 &
		pids+=($!)
	done
	readers+=("${pids[@]}")
	expect "100 requests wait at once" soon is hung 100
	expect "others are well" reads_well random
	control 'clear all'
	expect "all go on" wait "${pids[@]}"
	expect "nothing hangs" is hung 0
	stop
}

test_hang_unmount() {
	start
	hang hang
	stop
	expect "SIGTERM frees the reader" soon ended "$reader"
	start
	hang hangopen
	kill -INT "$server"
	server_ends
	expect "SIGINT frees the reader" soon ended "$reader"
	start
	hang hang
	detach
	server_ends
	expect "a lazy unmount frees the reader" soon ended "$reader"
	if [ "$(id -u)" = 0 ]; then
		start
		hang hang
		umount -f "$mnt" 2>/dev/null
		expect "a forced unmount frees the reader" soon ended "$reader"
		expect "and ends slowfs" soon ended "$server"
		mounted && umount "$mnt" # it was in use until now
		# libfuse's own word where the abort meets a thread that takes a request.
		sed -i '/^fuse: reading device: Software caused connection abort$/d' "$log"
		server_ends
	fi
	start -o delay_us=3600000000
	reader cat "$mnt/ab"
	expect "an open takes an hour" soon is opens 1
	stop
	expect "but not the end" soon ended "$reader"
}

# --- the command line ------------------------------------------------------------------------

# exits STATUS ARGUMENT...: with one line of explanation at least.
exits() {
	local want=$1 status=0

	shift
	client "$slowfs" "$@" >"$dir/out" 2>"$dir/err" || status=$?
	same "$status" "$want" && [ -s "$dir/err" ]
}

test_command_line() {
	expect "no arguments" exits 2
	expect "one argument" exits 2 "$src"
	expect "an unknown letter" exits 2 -x "$src" "$mnt"
	expect "an unknown option" exits 2 -o nothing=1 "$src" "$mnt"
	expect "says so" grep -qx 'slowfs: .*nothing.*\.' "$dir/err"
	expect "a bad value" exits 2 -o delay_us=x "$src" "$mnt"
	expect "no value" exits 2 -o delay_us "$src" "$mnt"
	expect "no source" exits 1 "$dir/absent" "$mnt"
	expect "says so" grep -qx 'slowfs: .*absent.*\.' "$dir/err"
	expect "no mount point" exits 1 "$src" "$dir/absent"
	expect "a file as source" exits 1 "$src/ab" "$mnt"
	expect "a file as mount point" exits 1 "$src" "$src/ab"
	expect "nothing was mounted" not grep -q " $dir/.* fuse" /proc/self/mounts
	expect "help" client "$slowfs" -h >"$dir/out"
	expect "helps" grep -q bandwidth "$dir/out"
}

test_daemon() {
	local pid

	(cd "$dir" && client "$slowfs" -o delay_us=3 src mnt) >"$dir/out" 2>"$dir/err"
	expect "it goes to the background" same $? 0
	expect "mounted by then" mounted
	expect "with the options" is delay_us 3
	expect "without a word" not test -s "$dir/err"
	server=$(value pid)
	expect "it reads" reads_well random
	expect "unmount" detach
	expect "it ends" soon ended "$server"
	(cd "$dir" && client "$slowfs" src mnt)
	pid=$server server=$(value pid)
	expect "another process" not same "$pid" "$server"
	kill "$server"
	expect "it ends by a signal" soon ended "$server"
	expect "and unmounts" not mounted
	server=''
}

# --- all of them -----------------------------------------------------------------------------

if [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
	echo "SKIP: no /dev/fuse"
	exit 77
fi
if [ "$(id -u)" != 0 ] && ! command -v fusermount3 >/dev/null; then
	echo "SKIP: no fusermount3"
	exit 77
fi
make_source
: >"$log"
[ $# != 0 ] || mapfile -t all < <(declare -F | awk '$3 ~ /^test_/ { print $3 }')
for name in "$@" "${all[@]}"; do
	begin=$(now_ms) before=$checks
	"$name"
	readers=()
	echo "$name: $((checks - before)) checks, $(($(now_ms) - begin)) ms"
done
[ "$failed" = 0 ] && echo "all good: $checks checks"
exit "$failed"
