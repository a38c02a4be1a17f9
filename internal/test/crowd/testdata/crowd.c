// SPDX-License-Identifier: Apache-2.0

/* crowd N ACTIVE: forks N processes, ACTIVE of which do a little work now and then, says "ready", and ends
 * them all when its standard input ends. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void work(void)
{
	const struct timespec pause = { 0, 100 * 1000 * 1000 };
	for (;;) {
		struct timespec from, now;
		nanosleep(&pause, NULL);
		clock_gettime(CLOCK_MONOTONIC, &from);
		do
			clock_gettime(CLOCK_MONOTONIC, &now);
		while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < 50 * 1000);
	}
}

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[1]) : 0, active = argc > 2 ? atoi(argv[2]) : 0, i;
	pid_t *child = calloc(n + 1, sizeof *child);
	char c;

	for (i = 0; i < n; i++) {
		child[i] = fork();
		if (child[i] < 0) {
			perror("fork");
			break;
		}
		if (child[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (i < active)
				work();
			for (;;)
				pause();
		}
	}
	if (i == n)
		puts("ready");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	while (i-- > 0)
		kill(child[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	return 0;
}
