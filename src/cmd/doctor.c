/* doctor.c - `reef doctor`: is this machine fit, and what would make it so? */
#include "pool/doctor/doctor.h"
#include "cmd/object/hold.h"
#include "cmd/print/json.h"
#include "kv/examine.h"
#include "pool/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: reef doctor [OPTIONS]\n\n"
	"Looks at what Reef needs of this machine, and says what is missing "
	"and which\ncommand would help. With --space also at the ordered maps "
	"of a space, of which\nit reads every key, and at its copies, if it "
	"has "
	"two; with --copies at those of\nall spaces. It changes nothing. "
	"Status 1: there is a problem.\n";

static void print_finding(const struct reef_finding *finding)
{
	printf("%-8s %s: %s\n", reef_verdict_name(finding->verdict),
	       finding->name, finding->found);
	if (*finding->advice)
		printf("%-8s   %s\n", "", finding->advice);
	if (*finding->command)
		printf("%-8s   $ %s\n", "", finding->command);
}

static void print_people(const struct reef_diagnosis *diagnosis)
{
	for (uint32_t i = 0; i < diagnosis->count; i++)
		print_finding(&diagnosis->findings[i]);
	printf("\n%u things examined, %u warnings, %u problems\n",
	       diagnosis->count, diagnosis->warnings, diagnosis->problems);
}

static void print_json(const struct reef_diagnosis *diagnosis)
{
	const struct reef_finding *finding = diagnosis->findings;
	struct reef_json json = {.stream = stdout};

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_number(&json, "warnings", diagnosis->warnings);
	reef_json_number(&json, "problems", diagnosis->problems);
	reef_json_begin(&json, "findings", REEF_JSON_ARRAY);
	for (uint32_t i = 0; i < diagnosis->count; i++, finding++) {
		reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
		reef_json_string(&json, "name", finding->name);
		reef_json_string(&json, "verdict",
				 reef_verdict_name(finding->verdict));
		reef_json_string(&json, "found", finding->found);
		reef_json_string(&json, "advice", finding->advice);
		reef_json_string(&json, "command", finding->command);
		reef_json_end(&json);
	}
	reef_json_end(&json);
	reef_json_end(&json);
}

/* --- trees --- */

struct trees {
	struct reef_space *space;
	const char *space_name;
	struct reef_diagnosis *diagnosis;
	uint32_t faults;	 /* of the tree that is looked at */
	struct reef_finding now; /* of it */
};

/* Write a key into a text, of which so much is used: what is not printable as
 * \xHH, and what is too long cut off. */
static void add_key(char *text, size_t room, const void *key, size_t size)
{
	const unsigned char *bytes = key;
	size_t used = strlen(text);

	for (size_t i = 0; i < size && i < 40 && used + 8 < room; i++)
		used += (size_t)snprintf(text + used, room - used,
					 bytes[i] > 32 && bytes[i] < 127 &&
							 bytes[i] != '\\'
						 ? "%c"
						 : "\\x%02x",
					 bytes[i]);
}

static void add_text(char *text, size_t room, const char *more)
{
	size_t used = strlen(text);

	snprintf(text + used, room - used, "%s", more);
}

static void note_fault(void *context, const struct tree_fault *fault)
{
	struct trees *trees = context;
	char *text = trees->now.found;
	size_t room = sizeof(trees->now.found);

	trees->now.verdict = REEF_VERDICT_PROBLEM;
	/* The first few are told. */
	if (++trees->faults > 3)
		return;
	add_text(text, room, trees->faults > 1 ? "; the keys" : "the keys");
	if (fault->after) {
		add_text(text, room, " behind ");
		add_key(text, room, fault->after, fault->after_size);
	}
	if (fault->before) {
		add_text(text, room, " before ");
		add_key(text, room, fault->before, fault->before_size);
	}
	add_text(text, room, ": ");
	add_text(text, room,
		 fault->error == -EBADMSG ? "not in order"
					  : reef_error_text(fault->error));
	if (fault->head)
		snprintf(text + strlen(text), room - strlen(text),
			 " (node at %#llx)", (unsigned long long)fault->head);
}

/* Add a finding to those that are there. */
static int add_finding(struct reef_diagnosis *diagnosis,
		       const struct reef_finding *finding)
{
	struct reef_finding *larger = realloc(
		diagnosis->findings, (diagnosis->count + 1) * sizeof(*finding));

	if (!larger)
		return -ENOMEM;
	diagnosis->findings = larger;
	diagnosis->warnings += finding->verdict == REEF_VERDICT_WARN;
	diagnosis->problems += finding->verdict == REEF_VERDICT_PROBLEM;
	larger[diagnosis->count++] = *finding;
	return 0;
}

static int add_tree(struct trees *trees, uint64_t keys)
{
	if (trees->now.verdict == REEF_VERDICT_OK)
		snprintf(trees->now.found, sizeof(trees->now.found),
			 "%llu keys, in order", (unsigned long long)keys);
	else
		snprintf(trees->now.advice, sizeof(trees->now.advice),
			 "a node is damaged or lost: of %u ranges nothing can "
			 "be read or changed; %llu other keys are sound",
			 trees->faults, (unsigned long long)keys);
	return add_finding(trees->diagnosis, &trees->now);
}

/* Look at a name of the space if it is a tree's. */
static int look_at_tree(void *context, const char *name)
{
	const struct reef_tree_options options = {.flags = REEF_TREE_EXISTING};
	struct trees *trees = context;
	struct reef_tree *tree;
	uint64_t keys = 0;
	int rc = reef_tree_open(trees->space, name, &options, &tree);

	if (rc == -EEXIST || rc == -ENOENT || rc == -REEF_EVERSION ||
	    rc == -EFAULT)
		return 0;
	trees->faults = 0;
	trees->now = (struct reef_finding){0};
	snprintf(trees->now.name, sizeof(trees->now.name), "tree %.40s/%.40s",
		 trees->space_name, name);
	if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT) {
		note_fault(trees, &(struct tree_fault){.error = rc});
		return add_tree(trees, 0);
	}
	if (rc)
		return rc;
	rc = tree_examine(tree, note_fault, trees, &keys);
	reef_tree_close(tree);
	if (rc == -REEF_EDROPPED)
		return 0;
	return rc ? rc : add_tree(trees, keys);
}

/* --- copies --- */

struct copies {
	struct reef_finding now;
	uint32_t parts;
};

static void note_difference(void *context, const struct reef_copies_part *part)
{
	struct copies *copies = context;
	char *text = copies->now.found;
	size_t room = sizeof(copies->now.found), used = strlen(text);

	/* The first few are told. */
	if (++copies->parts > 3)
		return;
	snprintf(text + used, room - used,
		 "%sextent %u: %llu %s from %#llx to %#llx (read from node %u, "
		 "not the same on node %u)",
		 used ? "; " : "", part->extent,
		 (unsigned long long)part->words,
		 part->words == 1 ? "word" : "words",
		 (unsigned long long)part->first,
		 (unsigned long long)part->last + 7, part->node,
		 part->twin_node);
}

/* Put what was found into words. */
static void judge_copies(struct copies *copies,
			 const struct reef_copies_report *report)
{
	struct reef_finding *now = &copies->now;
	char *text = now->found;
	size_t room = sizeof(now->found);

	if (copies->parts > 3)
		add_text(text, room, "; and elsewhere");
	if (!report->words)
		snprintf(text, room, "%u extents, %llu MiB, the same twice",
			 report->extents - report->alone - report->unread,
			 (unsigned long long)(report->bytes >> 20));
	if (report->alone)
		snprintf(text + strlen(text), room - strlen(text),
			 "; %u of %u extents have one copy", report->alone,
			 report->extents);
	if (report->unread)
		snprintf(text + strlen(text), room - strlen(text),
			 "; %u could not be read now", report->unread);
	if (report->in_use)
		snprintf(text + strlen(text), room - strlen(text),
			 "; %llu words are changed all the time",
			 (unsigned long long)report->in_use);
	if (report->words || report->alone || report->unread)
		now->verdict = REEF_VERDICT_WARN;
	if (report->words)
		snprintf(now->advice, sizeof(now->advice),
			 "%llu words in all. Clients that died as they wrote, "
			 "and two that wrote the same bytes at once, leave "
			 "such; if neither was so, a copy is damaged",
			 (unsigned long long)report->words);
}

/* Look at the copies of a space that is open. */
static int look_at_copies(struct reef_space *space, const char *name,
			  struct reef_diagnosis *diagnosis)
{
	struct reef_copies_report report;
	struct copies copies = {0};
	int rc;

	if (reef_space_copies(space) < 2)
		return 0;
	snprintf(copies.now.name, sizeof(copies.now.name), "copies of %.40s",
		 name);
	rc = reef_space_compare(space, note_difference, &copies, &report);
	if (rc)
		return rc;
	judge_copies(&copies, &report);
	return add_finding(diagnosis, &copies.now);
}

struct spaces {
	struct reef *reef;
	struct reef_diagnosis *diagnosis;
};

static int look_at_copies_of(void *context, const struct reef_space_info *info)
{
	struct spaces *spaces = context;
	struct reef_space *space;
	int rc;

	if (info->copies < 2 || !*info->name)
		return 0;
	rc = reef_space_open(spaces->reef, info->name, NULL, &space);
	if (rc)
		return rc == -ENOENT || rc == -EACCES ? 0 : rc;
	rc = look_at_copies(space, info->name, spaces->diagnosis);
	reef_space_close(space);
	return rc;
}

/* Look at the trees and the copies of a space, or (NULL) at the copies of all
 * spaces. 0, or 1: an error was printed. */
static int look_at_space(const struct reef_settings *settings,
			 const char *space, struct reef_diagnosis *diagnosis)
{
	struct trees trees = {.space_name = space, .diagnosis = diagnosis};
	struct spaces spaces = {.diagnosis = diagnosis};
	int rc = operate_open("doctor", settings, NULL, &spaces.reef);

	if (rc >= 0)
		return rc;
	if (space) {
		rc = reef_space_open(spaces.reef, space, NULL, &trees.space);
		if (!rc)
			rc = hold_each_name(trees.space, look_at_tree, &trees);
		if (!rc)
			rc = look_at_copies(trees.space, space, diagnosis);
	} else {
		rc = reef_space_list(spaces.reef, look_at_copies_of, &spaces);
	}
	reef_close(spaces.reef);
	return rc ? operate_failed("doctor", space ? space : "copies", rc) : 0;
}

int cmd_doctor(int argc, char **argv)
{
	bool json = false, copies = false;
	const char *space = NULL;
	const struct reef_config_flag flags[] = {
		{.name = "space",
		 .value_name = "NAME",
		 .help = "look at its ordered maps and copies, too; none",
		 .value = &space},
		{.name = "copies",
		 .help = "compare the copies of all spaces that have two",
		 .given = &copies},
		{.name = "json",
		 .help = "print JSON, for programs",
		 .given = &json},
		{0},
	};
	const struct reef_config_input input = {
		.argc = argc,
		.argv = argv,
		.uses = REEF_USE_BROKER | REEF_USE_NODE | REEF_USE_CLIENT |
			REEF_USE_REDIS,
		.flags = flags,
	};
	struct reef_settings settings;
	struct reef_diagnosis *diagnosis;
	int rc = cmd_settings(&input, usage, &settings);

	if (rc >= 0)
		return rc;
	if (reef_config_rest_count(settings.config) > 0) {
		rc = cmd_usage_error("doctor", "unexpected argument \"%s\"",
				     reef_config_rest(settings.config, 0));
		goto out;
	}
	rc = reef_diagnosis_create(
		&(struct reef_doctor_options){.settings = &settings},
		&diagnosis);
	if (rc) {
		fprintf(stderr, "reef doctor: %s\n", reef_error_text(rc));
		rc = 1;
		goto out;
	}
	if (space)
		rc = look_at_space(&settings, space, diagnosis);
	if (!rc && copies)
		rc = look_at_space(&settings, NULL, diagnosis);
	if (!rc) {
		(json ? print_json : print_people)(diagnosis);
		rc = diagnosis->problems > 0;
	}
	reef_diagnosis_destroy(diagnosis);
out:
	reef_settings_fini(&settings);
	return rc;
}
