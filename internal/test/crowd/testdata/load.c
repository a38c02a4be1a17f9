// SPDX-License-Identifier: Apache-2.0

/* load EXITS: says "ready", starts and reaps EXITS children a second that end at once, and ends when its standard input
 * ends. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void) /* ns */
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	const long long tick = 10 * 1000 * 1000, second = 1000 * 1000 * 1000;
	long long exits = argc > 1 ? atol(argv[1]) : 0, begin, done = 0, due;
	long long living = 0, most = exits / 50 + 100; /* children that were not reaped, which exit late on a busy machine */
	pid_t started;
	struct pollfd input = { 0, POLLIN, 0 };

	puts("ready");
	fflush(stdout);
	begin = now();
	while (poll(&input, 1, tick / 1000000) == 0) {
		due = (now() - begin) * exits / second - done;
		if (due > most - living) /* missed exits are not caught up */
			due = most - living;
		done = (now() - begin) * exits / second;
		while (due-- > 0) {
			started = fork();
			if (started == 0)
				_exit(0);
			if (started > 0)
				living++;
		}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			living--;
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
