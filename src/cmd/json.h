/* json.h - texts as JSON has them.
 *
 * Thread: any. */
#ifndef REEF_CMD_JSON_H
#define REEF_CMD_JSON_H

#include <stdio.h>

/* Write a text in quotes. Whatever is not UTF-8 becomes U+FFFD, so that what
 * comes out is JSON in any case. */
void reef_json_string(FILE *stream, const char *text);

#endif
