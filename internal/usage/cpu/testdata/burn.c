// SPDX-License-Identifier: Apache-2.0

// A process that the tests measure. It executes its arguments in order:
//   burn:MS        use this much CPU time
//   threads:N:US   N threads one after the other, each using this many microseconds of CPU time
//   loose:N:US     the same, but without a join, so that no thread wakes up as they end
//   crowd:N:US     N threads at once
//   pool:N:US      N threads that each use this much ten times a second, or only sleep, from here on
//   orphan:N:US    as fork, but the parent of the children ends before them
//   ignore         the ends of children are ignored from here on
//   wait           until standard input is closed or has a byte
//   say            write a line to standard output
//   leave:MS       the first thread ends; another one burns, and goes on with the arguments
//   second:MS      another thread burns and goes on with the arguments, while the first one sleeps
//   on:CPU         this thread runs there from here on
//   exec:MS        another thread burns and executes this program with the remaining arguments
//   fork:N:US      N children one after the other, each using this many microseconds of CPU time
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *self, **next;

static void spin(long turns)
{
	for (volatile long i = 0; i < turns; i++)
		;
}

static long nanoseconds(clockid_t clock)
{
	struct timespec t;

	if (clock_gettime(clock, &t))
		_exit(3);
	return t.tv_sec * 1000000000 + t.tv_nsec;
}

// burn uses CPU time. Reading the CPU time updates the kernel's sums, whose delay the tests are about. The last quarter
// is therefore as many loops as that much time took before.
static void burn(long us)
{
	const long aim = us * 1000, minute = 60000000000, few = 20 * us;
	const long wall = nanoseconds(CLOCK_MONOTONIC), first = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
	long turns = 0, used;

	if (us <= 0)
		return;
	do {
		spin(few);
		turns += few;
		used = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - first;
		if (nanoseconds(CLOCK_MONOTONIC) - wall > minute)
			_exit(4);
	} while (used < aim / 4 * 3);
	if (used < aim)
		spin((long)((double)turns * (aim - used) / used));
}

static void *thread(void *us)
{
	burn((long)us);
	return NULL;
}

static void *work(void *us)
{
	const struct timespec pause = {0, 100 * 1000 * 1000};

	for (;;) {
		nanosleep(&pause, NULL);
		burn((long)us);
	}
}

static void *sleep_on(void *unused)
{
	(void)unused;
	for (;;)
		pause();
}

static void run(void);

static void *go_on(void *us)
{
	burn((long)us);
	run();
	exit(0);
}

static void *execute(void *us)
{
	burn((long)us);
	next[-1] = self;
	execv(self, next - 1);
	_exit(1);
}

static void run(void)
{
	while (*next) {
		char *act = *next++, c;
		long n = 0, us = 0;
		pthread_t t;

		if (sscanf(act, "burn:%ld", &n) == 1) {
			burn(n * 1000);
		} else if (sscanf(act, "threads:%ld:%ld", &n, &us) == 2) {
			while (n-- > 0) {
				if (pthread_create(&t, NULL, thread, (void *)us))
					_exit(1);
				pthread_join(t, NULL);
			}
		} else if (sscanf(act, "loose:%ld:%ld", &n, &us) == 2) {
			while (n-- > 0) {
				struct timespec pause = {0, 3 * us * 1000};

				if (pthread_create(&t, NULL, thread, (void *)us))
					_exit(1);
				pthread_detach(t);
				nanosleep(&pause, NULL);
			}
		} else if (sscanf(act, "fork:%ld:%ld", &n, &us) == 2) {
			while (n-- > 0) {
				pid_t child = fork();
				if (child < 0)
					_exit(1);
				if (child == 0) {
					burn(us);
					_exit(0);
				}
				waitpid(child, NULL, 0);
			}
		} else if (sscanf(act, "crowd:%ld:%ld", &n, &us) == 2) {
			pthread_t all[256];

			if (n > 256)
				_exit(1);
			for (long i = 0; i < n; i++)
				if (pthread_create(&all[i], NULL, thread, (void *)us))
					_exit(1);
			for (long i = 0; i < n; i++)
				pthread_join(all[i], NULL);
		} else if (sscanf(act, "pool:%ld:%ld", &n, &us) == 2) {
			while (n-- > 0) {
				if (pthread_create(&t, NULL, us > 0 ? work : sleep_on, (void *)us))
					_exit(1);
			}
		} else if (sscanf(act, "orphan:%ld:%ld", &n, &us) == 2) {
			while (n-- > 0) {
				pid_t child = fork();

				if (child < 0)
					_exit(1);
				if (child == 0) {
					if (fork() == 0)
						burn(us);
					_exit(0);
				}
				waitpid(child, NULL, 0);
			}
		} else if (!strcmp(act, "ignore")) {
			signal(SIGCHLD, SIG_IGN);
		} else if (!strcmp(act, "wait")) {
			if (read(0, &c, 1) < 0)
				_exit(1);
		} else if (!strcmp(act, "say")) {
			if (write(1, "\n", 1) < 0)
				_exit(1);
		} else if (sscanf(act, "leave:%ld", &n) == 1) {
			if (pthread_create(&t, NULL, go_on, (void *)(n * 1000)))
				_exit(1);
			pthread_exit(NULL);
		} else if (sscanf(act, "second:%ld", &n) == 1) {
			if (pthread_create(&t, NULL, go_on, (void *)(n * 1000)))
				_exit(1);
			pause();
		} else if (sscanf(act, "on:%ld", &n) == 1) {
			cpu_set_t one;

			CPU_ZERO(&one);
			CPU_SET(n, &one);
			if (sched_setaffinity(0, sizeof(one), &one))
				_exit(1);
		} else if (sscanf(act, "exec:%ld", &n) == 1) {
			if (pthread_create(&t, NULL, execute, (void *)(n * 1000)))
				_exit(1);
			pause();
		} else {
			_exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	(void)argc;
	self = argv[0];
	next = argv + 1;
	run();
	return 0;
}
