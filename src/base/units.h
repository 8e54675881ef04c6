/* units.h - sizes and durations as people write them.
 *
 * A number with an optional fraction, and a unit right behind it. What a
 * fraction leaves below one byte or nanosecond is dropped.
 *
 * Thread: any. */
#ifndef REEF_BASE_UNITS_H
#define REEF_BASE_UNITS_H

#include <stdint.h>

/* "4096", "512M", "64KiB", "1.5g": K, M, G, T, P count in 1024, with "iB" or
 * without, in either case. "KB" and such are refused, because they mean two
 * things.  -EINVAL: not a size.  -ERANGE: over 64 bits. */
int reef_size_parse(const char *text, uint64_t *out);

/* "10s", "200ms", "1.5h": ns, us, ms, s, min, h, d; to nanoseconds. A unit must
 * be there, except after 0.  -EINVAL: not a duration.  -ERANGE. */
int reef_duration_parse(const char *text, uint64_t *out);

#define REEF_UNITS_TEXT_SIZE 32

/* The shortest whole number with a unit that parses back to the same: "64M",
 * "1500ms". Returns text. */
char *reef_size_format(uint64_t size, char text[REEF_UNITS_TEXT_SIZE]);
char *reef_duration_format(uint64_t duration_ns,
			   char text[REEF_UNITS_TEXT_SIZE]);

#endif
