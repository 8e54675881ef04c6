/* page.h - the live page of a pool: what HTTP has at "/".
 *
 * (1) The page is the files of the folder page, inside the program: one
 * document, one script, one style and an icon, PAGE_MAX bytes in all. (2) It
 * may load what is beside it and ask where it came from, and nothing else: no
 * other origin, no script or style inside the document, no markup made of text
 * (the Content-Security-Policy of each answer).
 *
 * Thread: any. */
#ifndef REEF_CMD_HTTP_PAGE_H
#define REEF_CMD_HTTP_PAGE_H

#include <stddef.h>

#define PAGE_MAX 61440u

struct MHD_Response;

/* The files, as tools/embed has made them. */
extern const unsigned char page_html[], page_js[], page_css[], page_svg[];
extern const size_t page_html_size, page_js_size, page_css_size, page_svg_size;

/* Make the response of a path. NULL: it is no part of the page, or there is no
 * memory. Caller destroys it. */
struct MHD_Response *page_make_response(const char *path);

#endif
