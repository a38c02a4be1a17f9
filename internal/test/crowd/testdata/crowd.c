// SPDX-License-Identifier: Apache-2.0

/* crowd N ACTIVE: forks N processes, ACTIVE of which do a little work now and then, says "ready", and ends
 * them all when its standard input ends.
 *
 * crowd N ACTIVE FILL ROOM...: the same, but the active ones rename themselves whenever they work, and the command
 * line of all is N, ACTIVE, FILL and, in place of ROOM, NUL bytes (FILL is "nul"), arguments of one letter ("short"; the
 * first letter changes each time) or ROOM itself ("long"). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *title; /* the part that may be overwritten */

static void rename_self(void)
{
	static unsigned n;
	char name[16];

	snprintf(name, sizeof name, "renamed %u", n++ % 1000);
	prctl(PR_SET_NAME, name);
	if (title && *title)
		*title = 'a' + n % 26;
}

/* fill overwrites the arguments from first to last, which are adjacent in memory. */
static void fill(char *kind, char *first, char *last)
{
	char *end = last + strlen(last), *c;

	if (!strcmp(kind, "short"))
		title = first;
	for (c = first; c < end; c++)
		if (!strcmp(kind, "nul"))
			*c = 0;
		else if (!strcmp(kind, "short"))
			*c = (c - first) % 2 ? 0 : 'a';
}

static void work(int renames)
{
	const struct timespec pause = { 0, 100 * 1000 * 1000 };
	for (;;) {
		struct timespec from, now;
		nanosleep(&pause, NULL);
		if (renames)
			rename_self();
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

	if (argc > 4)
		fill(argv[3], argv[4], argv[argc - 1]);
	for (i = 0; i < n; i++) {
		child[i] = fork();
		if (child[i] < 0) {
			perror("fork");
			break;
		}
		if (child[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (i < active)
				work(argc > 4);
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
