/* A pipeline's step as a picture. */
#ifndef CLI_TIMELINE_SVG_H
#define CLI_TIMELINE_SVG_H

#include <ligament/pipe.h>
#include <stdio.h>

/* Writes the timeline of `plan`, one row a device, and each device's load and memory at its side.
 */
void cli_timeline_svg(FILE *file, const lig_pipe_plan *plan, const lig_pipe_timeline *timeline,
                      const lig_pipe_options *options);

#endif
