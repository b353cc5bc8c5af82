#!/bin/sh
#
# Runs one ZooKeeper server, in a container or on this machine, while standard
# input is open. When the process at the other end dies, for whatever reason, the
# server is killed and its data is deleted.
#
#   sh -c "$(cat supervisor.sh)" supervisor ZOO_CFG MYID JVM_FLAGS [NAME BASE64]...
#
# Standard input carries commands, one a line: start, kill, pause, resume, and sh
# with shell code. Each is echoed on standard output once it is done, and followed by
# "failed" if code failed. Standard error is the server's log. In ZOO_CFG and
# JVM_FLAGS, {dir} stands for the server's directory, which holds the named files.
# If it holds a file env, the server is started with the variables in there.

# Ctrl-C signals the whole process group. Ending by it would leave the data behind.
trap '' HUP INT TERM

parent=${TMPDIR:-/tmp}
if [ -w /dev/shm ]; then parent=/dev/shm; fi
dir=$(mktemp -d "$parent/zkrecipes.XXXXXX") || exit 1

mkdir "$dir/data"
printf '%s\ndataDir=%s/data\n' "$1" "$dir" | sed "s|{dir}|$dir|g" >"$dir/zoo.cfg"
printf '%s\n' "$2" >"$dir/data/myid"
flags="-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 $(printf '%s' "$3" | sed "s|{dir}|$dir|g")"
shift 3
while [ $# -gt 1 ]; do
	printf '%s' "$2" | base64 -d >"$dir/$1"
	shift 2
done

run() {
	# shellcheck disable=SC1091
	if [ -e "$dir/env" ]; then . "$dir/env"; fi
	export JMXDISABLE=true SERVER_JVMFLAGS="$flags" ZOO_LOG_DIR="$dir"
	if [ -x "${ZOOKEEPER_HOME:-}/bin/zkServer.sh" ]; then
		exec "$ZOOKEEPER_HOME/bin/zkServer.sh" start-foreground "$dir/zoo.cfg"
	elif command -v zkServer.sh >/dev/null; then
		exec zkServer.sh start-foreground "$dir/zoo.cfg"
	else
		# Debian's packages. One of their loggers must come first on the class path.
		# shellcheck disable=SC2086 # the flags are several words
		exec java $flags -Dorg.slf4j.simpleLogger.showDateTime=true \
			-cp '/etc/zookeeper/conf:/usr/share/java/slf4j-simple.jar:/usr/share/java/*' \
			org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/zoo.cfg"
	fi
}

server=
end() {
	if [ -n "$server" ]; then
		kill -KILL "$server" && wait "$server"
		server=
	fi 2>/dev/null
}

# Reports whether a thread of the server runs still. Each stops by itself, some time after the
# signal was sent. Where there is no /proc, that is not known.
runs() {
	[ -d "/proc/$server/task" ] && cat "/proc/$server"/task/*/stat 2>/dev/null | grep -q '[)] [RSDW] '
}

while read -r command; do
	case $command in
	start)
		if [ -z "$server" ]; then
			run </dev/null >&2 &
			server=$!
		fi
		;;
	kill) end ;;
	pause)
		kill -STOP "$server"
		while runs; do sleep 0.01; done
		;;
	resume) kill -CONT "$server" ;;
	sh\ *)
		export server
		(cd "$dir" && eval "${command#sh }") </dev/null >&2 || command="$command failed"
		;;
	esac
	echo "$command"
done

end
rm -rf "$dir"
