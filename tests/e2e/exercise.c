/* exercise.c - one process that exercises files (check/exercise.h), and may be
 * killed.
 *
 *   exercise reef SPACE MODEL SEED CALLS    files of the library
 *   exercise in DIRECTORY MODEL SEED CALLS  files of a directory
 *
 * The MODEL is a file that outlives the process: whoever comes next goes on
 * with it, after what was under way is settled. Prints the session once the
 * pool is open. Ends with 0 after CALLS calls in all, and a look at everything;
 * 1: something was wrong, which it prints; 3: its session was fenced, or what
 * the directory shows is gone. */
#include "check/exercise_posix.h"
#include "check/exercise_reef.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FENCED 3

struct run {
	struct exercise *exercise;
	const struct exercise_face *face;
	void *context;
	uint64_t calls;
};

/* Map the model, and make it if it is new. */
static struct exercise *map_model(const char *path, uint64_t seed,
				  const struct exercise_face *face)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	struct exercise *exercise;

	if (size < 0 || ftruncate(fd, sizeof(*exercise)))
		return NULL;
	exercise = mmap(NULL, sizeof(*exercise), PROT_READ | PROT_WRITE,
			MAP_SHARED, fd, 0);
	close(fd);
	if (exercise == MAP_FAILED)
		return NULL;
	if (!size)
		exercise_init(exercise, seed, face);
	exercise->has_gaps = true;
	return exercise;
}

static int settle(const struct run *run)
{
	int rc;

	do
		rc = exercise_settle(run->exercise, run->face, run->context);
	while (rc && rc != -EXDEV &&
	       run->face->judge(run->context, rc) == EXERCISE_DOUBT);
	return rc;
}

static int exercise(const struct run *run)
{
	int rc = settle(run);

	while (!rc && run->exercise->number < run->calls)
		rc = exercise_step(run->exercise, run->face, run->context);
	if (!rc)
		rc = exercise_check(run->exercise, run->face, run->context);
	if (!rc)
		printf("%llu calls, %llu settled\n",
		       (unsigned long long)run->exercise->number,
		       (unsigned long long)run->exercise->doubts);
	else if (rc == -EXDEV)
		fprintf(stderr, "%s\n", run->exercise->error);
	else
		fprintf(stderr, "call %llu: %s\n",
			(unsigned long long)run->exercise->number,
			reef_error_text(rc));
	if (rc && rc != -EXDEV &&
	    run->face->judge(run->context, rc) == EXERCISE_GONE)
		return FENCED;
	return rc != 0;
}

static int exercise_files(const char *space, const char *model, uint64_t seed,
			  uint64_t calls)
{
	struct exercise_reef context = {.chunk = 4096, .prefix = model};
	struct run run = {.face = &exercise_reef_face,
			  .context = &context,
			  .calls = calls};
	struct reef *reef;
	int rc = reef_open(NULL, NULL, &reef);

	/* Of the path only the last part can be in a name. */
	context.prefix = strrchr(model, '/') ? strrchr(model, '/') + 1 : model;
	if (!rc)
		rc = reef_space_open(reef, space,
				     &(struct reef_space_options){
					     .flags = REEF_SPACE_CREATE},
				     &context.space);
	if (rc) {
		fprintf(stderr, "%s\n", reef_error_text(rc));
		return rc == -REEF_EFENCED ? FENCED : 1;
	}
	printf("session %u\n", reef_session(reef));
	fflush(stdout);
	run.exercise = map_model(model, seed, run.face);
	rc = run.exercise ? exercise(&run) : 1;
	exercise_reef_close(&context);
	reef_space_close(context.space);
	reef_close(reef);
	return rc;
}

static int exercise_directory(const char *directory, const char *model,
			      uint64_t seed, uint64_t calls)
{
	struct exercise_posix context = {.directory = directory};
	struct run run = {.face = &exercise_posix_face,
			  .context = &context,
			  .calls = calls};
	int rc;

	run.exercise = map_model(model, seed, run.face);
	rc = run.exercise ? exercise(&run) : 1;
	exercise_posix_close(&context);
	return rc;
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "reef"))
		return exercise_files(argv[2], argv[3],
				      strtoull(argv[4], NULL, 10),
				      strtoull(argv[5], NULL, 10));
	if (argc == 6 && !strcmp(argv[1], "in"))
		return exercise_directory(argv[2], argv[3],
					  strtoull(argv[4], NULL, 10),
					  strtoull(argv[5], NULL, 10));
	fprintf(stderr, "see the top of exercise.c\n");
	return 2;
}
