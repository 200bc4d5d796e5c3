/* A pipeline's step as an SVG timeline. */
#ifndef CLI_TIMELINE_SVG_H
#define CLI_TIMELINE_SVG_H

#include <ligament/pipe.h>
#include <stdio.h>

/* Writes the timeline of `plan`, one row per device, with each device's load and memory next to
 * it. */
void cli_timeline_svg(FILE *file, const lig_pipe_plan *plan, const lig_pipe_timeline *timeline,
                      const lig_pipe_options *options);

#endif
