/* image.h - `reef space save` and `restore`, and a bar for what takes long.
 *
 * Thread: main. */
#ifndef REEF_CMD_IMAGE_H
#define REEF_CMD_IMAGE_H

#include "cmd/operate.h"

/* As run of a verb. */
int cmd_space_save(struct reef_operator *op, const char *const *arguments,
		   uint32_t count);
/* copies: 0, or how many the space is to have. */
int cmd_space_restore(const char *const *arguments, uint32_t count,
		      uint8_t copies);

/* A bar on the terminal's last line, drawn once the work has taken a moment;
 * nothing where stderr is no terminal. */
struct cmd_bar {
	const char *what; /* "saves" */
	uint64_t began_ns, drawn_ns;
};
/* As progress of reef_image_options; the context is a bar. */
int cmd_bar_draw(void *bar, uint64_t done, uint64_t all);
/* Take the bar away. */
void cmd_bar_end(struct cmd_bar *bar);

#endif
