# Sourced by run.sh and kubernetes.sh.

# tests LOG ARGUMENTS... runs the integration tests with these arguments of go test, keeps their output
# in LOG, and prints the numbers of passed, failed and skipped tests. It fails if a test fails, if the run
# ends early, or if no test ran. LOG.again then contains a value of RUN for a second run: the failed tests,
# or an empty value, for all tests, if the run ended early.
tests() {
	local log=$1 status=0 passed failed skipped again
	shift
	# Port 0: the collectors of parallel runs do not compete for the port of their own metrics.
	INTEGRATION=1 ENERGY_TELEMETRY_PORT=0 timeout 1800 go test -count=1 -v -timeout 29m "$@" ./receiver/test/integration 2>&1 | tee "$log" || status=$?
	passed=$(grep -c '^--- PASS' "$log" || true)
	failed=$(grep -c '^--- FAIL' "$log" || true)
	skipped=$(grep -c '^--- SKIP' "$log" || true)
	echo
	grep -E '^ *--- (FAIL|SKIP)' "$log" || true
	again=
	if [ "$failed" -gt 0 ] && grep -q '^FAIL[[:space:]]' "$log" && ! grep -q '^panic: ' "$log"; then
		again="^($(sed -n 's/^--- FAIL: \([^ ]*\).*/\1/p' "$log" | sort -u | paste -sd '|'))\$"
	fi
	echo "$again" >"$log.again"
	echo "$passed passed, $failed failed, $skipped skipped; the output is in $log"
	if [ "$failed" -gt 0 ]; then
		return 1
	elif [ "$status" != 0 ]; then
		echo "the tests did not run to their end (status $status)" >&2
		return 1
	elif [ "$passed" = 0 ]; then
		echo "no test ran: the reasons are above" >&2
		return 1
	fi
}
