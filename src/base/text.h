/* text.h - texts that can be shown.
 *
 * (1) A text is *plain* if it is UTF-8 and has no character that a terminal or
 *     a log acts upon instead of showing it: no control character (up to
 *     U+001F, U+007F to U+009F), no separator of lines or paragraphs, and
 *     nothing that turns the direction of writing, which makes one name look
 *     like another.
 *
 * Thread: any. */
#ifndef REEF_BASE_TEXT_H
#define REEF_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* How many bytes the UTF-8 character has that begins a text of `size` bytes;
 * 0: that is none. */
size_t reef_text_character(const char *text, size_t size);

/* Whether a text is plain (1); an empty one is. */
bool reef_text_is_plain(const char *text, size_t size);

/* Put a ? in the place of every byte that keeps a text from being plain. */
void reef_text_make_plain(char *text, size_t size);

#endif
