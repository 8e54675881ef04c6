/* paths.h - where a user's things are, unless told otherwise.
 *
 *	configuration	$XDG_CONFIG_HOME/reef/reef.conf, ~/.config/reef/...
 *	data		$XDG_STATE_HOME/reef, or ~/.local/state/reef
 *	runtime		$XDG_RUNTIME_DIR/reef, or /tmp/reef-UID
 *
 * (1) A variable that is empty or does not begin with '/' counts as not set, as
 *     the XDG rules have it. Without HOME it is what the system's list of users
 *     says.
 * (2) These are names only. reef_private_directory makes a directory of one, or
 *     refuses what somebody else has put there.
 *
 * All take an environment like `environ`, which NULL means. The caller frees
 * the answer.  -ENOMEM.  -ENOENT: this user has no home directory.
 *
 * Thread: any, while nobody changes the environment. */
#ifndef REEF_BASE_PATHS_H
#define REEF_BASE_PATHS_H

int reef_path_config(char *const *environment, char **out);
int reef_path_data(char *const *environment, char **out);
int reef_path_runtime(char *const *environment, char **out);

/* "~" and "~/x" with the home directory in place of "~"; anything else as it
 * is. */
int reef_path_expand(char *const *environment, const char *path, char **out);

/* The value of a variable, or NULL. */
const char *reef_environment_get(char *const *environment, const char *name);

#endif
