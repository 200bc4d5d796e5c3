/* Options of the matrix factorization: each is a name, as AdaPM's program has it, and a value. */
#ifndef MF_OPTIONS_H
#define MF_OPTIONS_H

#include <stdlib.h>
#include <string.h>

typedef struct mf_option { /* one of number, real and text is where the value goes */
    const char *name;
    char letter; /* 0: none */
    long *number;
    double *real;
    const char **text;
} mf_option;

/* 0 for an unknown option, or a value that it cannot have. */
static inline int mf_take_option(const mf_option *options, const char *word, const char *value)
{
    for (const mf_option *one = options; one->name != NULL; one++) {
        int is_long = strncmp(word, "--", 2) == 0 && strcmp(word + 2, one->name) == 0;
        int is_short = one->letter && word[0] == '-' && word[1] == one->letter && word[2] == 0;
        char *end = NULL;
        if (!is_long && !is_short)
            continue;
        if (one->text != NULL)
            *one->text = value;
        else if (one->number != NULL)
            *one->number = strtol(value, &end, 10);
        else
            *one->real = strtod(value, &end);
        return end == NULL || (end != value && *end == 0);
    }
    return 0;
}

#endif
