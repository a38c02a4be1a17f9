// SPDX-License-Identifier: Apache-2.0

// The floor of windows: it only wakes up at each expiration of a kernel timer. The argument is the time between two
// expirations, in nanoseconds.
#include <stdint.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long long ns = argc == 2 ? atoll(argv[1]) : 0;
	struct timespec period = {ns / 1000000000, ns % 1000000000};
	struct itimerspec every = {period, period};
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	uint64_t expirations;

	if (ns <= 0 || timer < 0 || timerfd_settime(timer, 0, &every, NULL))
		return 1;
	while (read(timer, &expirations, sizeof expirations) == sizeof expirations)
		;
	return 1;
}
