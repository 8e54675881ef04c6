/* replay.c - run a target on every file of a folder, without libFuzzer. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>

#define INPUT_MAX (1u << 20)

static int run_file(const char *folder, const char *name)
{
	static uint8_t bytes[INPUT_MAX];
	char path[4096];
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "rb");
	if (!file) {
		perror(path);
		return 1;
	}
	size = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	LLVMFuzzerTestOneInput(bytes, size);
	return 0;
}

int main(int argc, char **argv)
{
	struct dirent *entry;
	int count = 0, failed = 0;
	DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;

	if (!folder) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		failed += run_file(argv[1], entry->d_name);
		count++;
	}
	closedir(folder);
	printf("%d inputs\n", count);
	return failed || !count;
}
