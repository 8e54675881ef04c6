/* internal.h - what the files of the configuration share.
 *
 * Thread: owner. */
#ifndef REEF_BASE_CONFIG_INTERNAL_H
#define REEF_BASE_CONFIG_INTERNAL_H

#include "base/config/config.h"

#define REEF_CONFIG_ERROR_SIZE 512

struct reef_config_value {
	char *text; /* NULL: none */
	uint64_t number;
	char **items;
	uint32_t count;
	enum reef_config_source source;
	char *where;   /* "reef.conf:3", "REEF_LEND", "--lend"; NULL: default */
	uint32_t line; /* of the file that was read; 0: not in it */
};

struct reef_config {
	const struct reef_config_setting *settings;
	uint32_t count;
	struct reef_config_value *values;
	char *const *environment;
	char *file;
	const char **rest;
	uint32_t rest_count;
	bool wants_help, wants_check;
	char error[REEF_CONFIG_ERROR_SIZE];
};

/* Keep this text as the error; returns rc. */
__attribute__((format(printf, 3, 4))) int
reef_config_fail(struct reef_config *config, int rc, const char *format, ...);

/* The setting of this name, or -1. */
int64_t reef_config_find(const struct reef_config *config, const char *name,
			 size_t size);

/* Read the flags, or the environment's variables, into values. *file is what
 * --config or REEF_CONFIG says, if so; borrowed. */
int reef_config_read_flags(struct reef_config *config,
			   const struct reef_config_input *input,
			   const char **file);
int reef_config_read_environment(struct reef_config *config, const char **file);

#endif
