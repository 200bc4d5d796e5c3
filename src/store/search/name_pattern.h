/* Patterns of names: * any text, ? one character, [a-z] one of these, [!a-z] none of these. Pure.
 */
#ifndef LIGI_NAME_PATTERN_H
#define LIGI_NAME_PATTERN_H

/* 1 if the whole text matches. '/' is an ordinary character; a '[' without a ']' matches itself. */
int ligi_pattern_fits(const char *pattern, const char *text);

#endif
