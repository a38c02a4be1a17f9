// SPDX-License-Identifier: Apache-2.0

// Turns makes processes run for 0.4 ms each, twenty per second, one after the other. Before each run
// of a process, while it sleeps, Turns moves it to the other one of two cgroups.
//
//	turns NUMBER FILE FILE [FILE FILE...]    NUMBER is the number of processes, each pair of
//	                                         FILEs the cgroup.procs of two cgroups
//
// It prints "done" when all processes wait for their first turn. They end with it.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { most = 10000 };

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static long ran(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void take_turns(const sigset_t *turn) {
	for (int signal; sigwait(turn, &signal) == 0;)
		for (long began = ran(); ran() - began < 400000;)
			;
}

int main(int argc, char **argv) {
	static pid_t children[most];
	int n = argc < 4 ? 0 : atoi(argv[1]);
	if (n < 1 || n > most) {
		fputs("usage: turns NUMBER FILE FILE [FILE FILE...]\n", stderr);
		return 1;
	}
	sigset_t turn;
	sigemptyset(&turn);
	sigaddset(&turn, SIGUSR1);
	sigprocmask(SIG_BLOCK, &turn, NULL);
	for (int i = 0; i < n; i++) {
		children[i] = fork();
		if (children[i] < 0)
			fail("fork");
		if (children[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			take_turns(&turn);
			return 1;
		}
	}
	puts("done");
	fflush(stdout);
	for (int i = 0;; i++) {
		struct timespec pause = {.tv_nsec = 50000000};
		nanosleep(&pause, NULL);
		for (int k = 2; k < argc; k++) {
			if ((k + i / n) % 2 == 0) // the first turn of each child is in the second cgroup
				continue;
			FILE *procs = fopen(argv[k], "w");
			if (!procs || fprintf(procs, "%d", children[i % n]) < 0 || fclose(procs))
				fail(argv[k]);
		}
		kill(children[i % n], SIGUSR1);
	}
}
