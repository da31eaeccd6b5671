# SPDX-License-Identifier: LGPL-2.1-or-later
# bash completion for shadectl(1): verbs, mount points, then what the verb takes.

_shadectl_mounts() {
	# Mount points have spaces as \040 there.
	local _ point type
	while read -r _ point type _; do
		[[ $type == fuse.shadefs || -e $point/.shade/control ]] && printf '%b\n' "$point"
	done < <(grep -E ' (fuse\.shadefs|overlay) ' /proc/self/mounts 2>/dev/null)
}

# Those lines that begin so. compgen -W would expand them, and anybody may have named a mount.
_shadectl_begin() {
	local line
	while IFS= read -r line; do
		[[ $line == "$1"* ]] && COMPREPLY+=("$line")
	done
}

_shadectl() {
	local verbs='status stats top report score order epoch warm evict pin unpin capacity policy
		rescan forget upgrade umount debug'
	local policies='shade app icache minio lru lfu fifo'
	local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
	local verb=${COMP_WORDS[1]} options='--help'

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "$verbs --help --version" -- "$current")
		return
	fi
	case $verb in
	stats) options+=' --json' ;;
	top) options+=' --once --interval' ;;
	report) options+=' --output' ;;
	score | order) options+=' --file' ;;
	warm) options+=' --file --null --timeout' ;;
	evict | pin | unpin) options+=' --file --null' ;;
	umount) options+=' --lazy' ;;
	esac
	if [[ $before == --timeout || $before == --interval ]]; then
		return
	elif [[ $before == -f || $before == -o || $before == --file || $before == --output ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
	elif [[ $current == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
	elif ((COMP_CWORD == 2)); then
		_shadectl_begin "$current" < <(_shadectl_mounts)
		((${#COMPREPLY[@]})) || mapfile -t COMPREPLY < <(compgen -d -- "$current")
	elif [[ $verb == policy ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$policies" -- "$current")
	elif [[ $verb == forget ]]; then
		_shadectl_begin "$current" < <(ls -- "${COMP_WORDS[2]}/.shade/jobs" 2>/dev/null)
	elif [[ $verb == warm || $verb == evict || $verb == pin || $verb == unpin ]]; then
		_shadectl_paths "${COMP_WORDS[2]}" "$current"
	fi
}

# Paths from here, else relative to the mount.
_shadectl_paths() {
	mapfile -t COMPREPLY < <(compgen -f -- "$2")
	if ((!${#COMPREPLY[@]})) && [[ $2 != /* ]]; then
		mapfile -t COMPREPLY < <(cd -- "$1" 2>/dev/null && compgen -f -- "$2")
	fi
}

complete -o filenames -F _shadectl shadectl
