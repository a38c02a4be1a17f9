// SPDX-License-Identifier: Apache-2.0

/* load EXITS SPINNING: keeps SPINNING children busy, starts and reaps EXITS children a second that end at once, says
 * "ready", and ends when its standard input ends. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void) /* ns */
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static pid_t spin(void)
{
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			;
	}
	return child;
}

int main(int argc, char **argv)
{
	const long long tick = 10 * 1000 * 1000, second = 1000 * 1000 * 1000;
	long long exits = argc > 2 ? atol(argv[1]) : 0, begin, done = 0, due;
	long long living = 0, most = exits / 50 + 100; /* children that were not reaped, which exit late on a busy machine */
	pid_t started;
	int spinning = argc > 2 ? atoi(argv[2]) : 0, i;
	pid_t *child = calloc(spinning + 1, sizeof *child);
	struct pollfd input = { 0, POLLIN, 0 };

	for (i = 0; i < spinning; i++)
		if ((child[i] = spin()) < 0) {
			perror("fork");
			return 1;
		}
	puts("ready");
	fflush(stdout);
	begin = now();
	while (poll(&input, 1, exits ? tick / 1000000 : -1) == 0) {
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
	for (i = 0; i < spinning; i++)
		kill(child[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	return 0;
}
