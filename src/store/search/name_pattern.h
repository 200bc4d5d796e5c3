/* Patterns of names: * any text, ? one character, [a-z] one of these, [!a-z] none of these. Pure.
 */
#ifndef LIGI_NAME_PATTERN_H
#define LIGI_NAME_PATTERN_H

/* 1 when the whole text fits. '/' is a character like any other; a '[' without its ']' stands for
 * itself. */
int ligi_pattern_fits(const char *pattern, const char *text);

#endif
