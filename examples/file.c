/* file.c - a file in the memory of a pool. With `reef up` running use NULL
 * instead of "embedded:64M": then any process, on any machine, opens the same
 * file, and `reef file get` copies it to a disk. */
#include <reef/file.h>
#include <stdio.h>
#include <string.h>

static int use(struct reef_file *file)
{
	static const char *const lines[] = {"one\n", "two\n", "three\n"};
	char text[64] = "";
	struct reef_file_info info;
	ssize_t size = 0;
	int rc;

	/* Each gets a place of its own, however many append at once. */
	for (size_t i = 0; i < 3 && size >= 0; i++)
		size = reef_file_append(file, lines[i], strlen(lines[i]), NULL);
	/* What nobody wrote is zeroes, and takes no memory. */
	if (size >= 0)
		size = reef_file_pwrite(file, "far", 3, 1u << 30);
	if (size >= 0)
		size = reef_file_pread(file, text, sizeof(text) - 1, 4);
	if (size < 0)
		return (int)size;
	printf("%s", text);
	rc = reef_file_stat(file, &info);
	if (!rc)
		printf("%llu bytes, of which %llu are memory\n",
		       (unsigned long long)info.size,
		       (unsigned long long)info.taken);
	return rc;
}

int main(void)
{
	struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct reef_file_options create = {.flags = REEF_FILE_CREATE};
	struct reef_file *file = NULL;
	struct reef_space *space;
	struct reef *reef = NULL;
	int rc = reef_open("embedded:64M", NULL, &reef);

	if (!rc)
		rc = reef_space_open(reef, "examples", &make, &space);
	if (!rc)
		rc = reef_file_open(space, "notes", &create, &file);
	if (!rc)
		rc = use(file);
	if (rc)
		fprintf(stderr, "file: %s\n", reef_error_text(rc));
	reef_file_close(file);
	reef_close(reef);
	return rc ? 1 : 0;
}
