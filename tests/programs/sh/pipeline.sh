#!/bin/sh
# Covers: a shell script: pipelines, subshells, command substitution, background jobs and wait,
# traps, here-documents, redirections, a fifo, many short processes.
#
# Hard for a recorder: dozens of forks and execs whose ends and pipes cross in time; the shell waits
# for any child, is interrupted by signals while it does, and never execs in its subshells.
set -eu

fail() {
    echo "pipeline: failed: $1" >&2
    exit 1
}

dir=$(mktemp -d "${TMPDIR:-/tmp}/mw-pipeline.XXXXXX")
trap 'rm -rf "$dir"' EXIT

numbers() {
    i=1
    while [ "$i" -le "$1" ]; do
        echo "$i"
        i=$((i + 1))
    done
}

# A pipeline of five, and a substitution within a substitution.
sorted=$(numbers 200 | sort -rn | head -n 3 | tr '\n' ' ' | cat)
[ "$sorted" = "200 199 198 " ] || fail "sorted: $sorted"
lines=$(numbers "$(numbers 50 | wc -l)" | grep -c 1)
echo "pipelines: $sorted, $lines lines with a 1"

# What a subshell changes stays there; its status comes out.
variable=outer
status=0
(variable=inner; cd /; [ "$variable" = inner ]; exit 9) || status=$?
[ "$variable" = outer ] || fail "variable"
echo "subshell: status $status"

# Background jobs end in any order; each status is found by its pid.
sum=0
jobs=
for i in 1 2 3 4 5; do
    (sleep "0.00$((6 - i))"; echo "job $i" >"$dir/job-$i"; exit "$i") &
    jobs="$jobs $!"
done
for job in $jobs; do
    status=0
    wait "$job" || status=$?
    sum=$((sum + status))
done
echo "background: sum of statuses $sum, $(cat "$dir"/job-* | wc -l) files"

# A signal from a child, handled between two waits; a child that dies of one.
trapped=0
trap 'trapped=$((trapped + 1))' USR1
(kill -USR1 $$; exit 0) &
wait $! || true
while [ "$trapped" -eq 0 ]; do
    sleep 0.01
done
sleep 100 &
kill -TERM $!
status=0
wait $! || status=$?
echo "traps: $trapped, killed $status"

# Here-documents, descriptors of its own, a fifo.
exec 3>"$dir/three"
cat >&3 <<END
sum is $sum, $((6 * 7))
END
cat >&3 <<'END'
$sum as it stands
END
exec 3>&-
mkfifo "$dir/fifo"
(read -r line <"$dir/fifo"; echo "$line" >>"$dir/three") &
echo "through the fifo" >"$dir/fifo"
wait
cat "$dir/three"

# Many short lives.
count=0
while [ "$count" -lt 30 ]; do
    /bin/true || fail "true"
    count=$((count + 1))
done
echo "short lives: $count"
