/* Fiduccia-Mattheyses over acyclic assignments: each unit once, best gain first, back to the best
 * prefix. */
#ifndef LIGI_FM_H
#define LIGI_FM_H

#include "pipe/search/moves.h"

/* Repeats passes until one brings no improvement, at most `passes`. Lowers the cut within the
 * limits and never raises it. */
lig_status ligi_fm(ligi_moves *moves, uint32_t passes);

#endif
