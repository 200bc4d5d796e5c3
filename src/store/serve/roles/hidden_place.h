/* Error texts for roles that see only some models, without the store's location. Pure. */
#ifndef LIGI_HIDDEN_PLACE_H
#define LIGI_HIDDEN_PLACE_H

#include "base/error.h"

/* Fills `out` with the text, in which "the store" replaces the store's URI and its path. */
void ligi_served_place_hide(const char *text, const char *store_uri,
                            char out[LIGI_ERROR_TEXT_BYTES]);

#endif
