/* Saves in the background, for lig_store_close. */
#ifndef LIGI_SAVE_ASYNC_H
#define LIGI_SAVE_ASYNC_H

#include "store/handle.h"

/* Ends saves that were begun and neither committed nor aborted. The store's lock is held. */
void ligi_save_async_end_open(lig_store *store);

#endif
