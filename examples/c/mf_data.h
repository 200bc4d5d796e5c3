/* Files of the matrix factorization: train.mmc and test.mmc (Matrix Market, coordinates), W.mma and
 * H.mma (Matrix Market, dense, by column), and FILE.bin, a binary copy of FILE: int rows, int
 * columns, long count, then {int row, int column, double value}; indexes count from 1. */
#ifndef MF_DATA_H
#define MF_DATA_H

#include "training.h"

#include <sys/stat.h>

typedef struct mf_point {
    int row, column; /* from 0 */
    double value;
} mf_point;

typedef struct mf_matrix {
    int rows, columns;
    long count;
    mf_point *points;
    int *in_row, *in_column; /* how many points */
} mf_matrix;

static inline void mf_fail(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

static inline FILE *mf_open(const char *folder, const char *name, const char *suffix, char *path,
                            size_t bytes)
{
    snprintf(path, bytes, "%s/%s%s", folder, name, suffix);
    return fopen(path, "r");
}

/* The banner, then comments; fills `line` with the sizes. */
static inline void mf_read_head(FILE *file, const char *path, const char *banner, char line[1024])
{
    if (fgets(line, 1024, file) == NULL || strncmp(line, banner, strlen(banner)) != 0)
        mf_fail(path, "not a Matrix Market file of this kind");
    do {
        if (fgets(line, 1024, file) == NULL)
            mf_fail(path, "ends before its sizes");
    } while (line[0] == '%');
}

static inline void mf_add(mf_matrix *matrix, long at, const char *path, mf_point point)
{
    if (point.row < 0 || point.row >= matrix->rows || point.column < 0 ||
        point.column >= matrix->columns)
        mf_fail(path, "a point is outside of the matrix");
    matrix->points[at] = point;
    matrix->in_row[point.row]++;
    matrix->in_column[point.column]++;
}

static inline void mf_reserve(mf_matrix *matrix, const char *path)
{
    if (matrix->rows <= 0 || matrix->columns <= 0 || matrix->count < 0)
        mf_fail(path, "its sizes are wrong");
    matrix->points = memory((size_t)matrix->count + 1, sizeof *matrix->points);
    matrix->in_row = memory((size_t)matrix->rows, sizeof *matrix->in_row);
    matrix->in_column = memory((size_t)matrix->columns, sizeof *matrix->in_column);
}

static inline void mf_read_binary(FILE *file, const char *path, mf_matrix *matrix)
{
    struct {
        int rows, columns;
        long count;
    } head;
    struct {
        int row, column;
        double value;
    } point;
    if (fread(&head, sizeof head, 1, file) != 1)
        mf_fail(path, "ends before its sizes");
    *matrix = (mf_matrix){head.rows, head.columns, head.count, NULL, NULL, NULL};
    mf_reserve(matrix, path);
    for (long i = 0; i < matrix->count; i++) {
        if (fread(&point, sizeof point, 1, file) != 1)
            mf_fail(path, "ends too early");
        mf_add(matrix, i, path, (mf_point){point.row - 1, point.column - 1, point.value});
    }
}

static inline void mf_read_text(FILE *file, const char *path, mf_matrix *matrix)
{
    char line[1024];
    mf_read_head(file, path, "%%MatrixMarket matrix coordinate real general", line);
    if (sscanf(line, "%d %d %ld", &matrix->rows, &matrix->columns, &matrix->count) != 3)
        mf_fail(path, "its sizes are wrong");
    mf_reserve(matrix, path);
    for (long i = 0; i < matrix->count; i++) {
        mf_point point;
        if (fscanf(file, "%d %d %lg", &point.row, &point.column, &point.value) != 3)
            mf_fail(path, "ends too early");
        mf_add(matrix, i, path, (mf_point){point.row - 1, point.column - 1, point.value});
    }
}

static inline mf_matrix *mf_read(const char *folder, const char *name)
{
    char path[4096];
    mf_matrix *matrix = memory(1, sizeof *matrix);
    FILE *file = mf_open(folder, name, ".bin", path, sizeof path);
    if (file != NULL) {
        mf_read_binary(file, path, matrix);
    } else {
        file = mf_open(folder, name, "", path, sizeof path);
        if (file == NULL)
            mf_fail(path, "cannot be read");
        mf_read_text(file, path, matrix);
    }
    fclose(file);
    return matrix;
}

static inline void mf_free(mf_matrix *matrix)
{
    free(matrix->points);
    free(matrix->in_row);
    free(matrix->in_column);
    free(matrix);
}

/* The element [row][column] of a dense matrix of the given sizes; the caller frees it. */
static inline double *mf_read_dense(const char *folder, const char *name, int rows, int columns)
{
    char path[4096], line[1024];
    int found_rows, found_columns;
    double *all = memory((size_t)rows * (size_t)columns, sizeof *all);
    FILE *file = mf_open(folder, name, "", path, sizeof path);
    if (file == NULL)
        mf_fail(path, "cannot be read");
    mf_read_head(file, path, "%%MatrixMarket matrix array real general", line);
    if (sscanf(line, "%d %d", &found_rows, &found_columns) != 2 || found_rows != rows ||
        found_columns != columns)
        mf_fail(path, "has other sizes than the data and the rank");
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++)
            if (fscanf(file, "%lg", &all[(size_t)r * (size_t)columns + (size_t)c]) != 1)
                mf_fail(path, "ends too early");
    fclose(file);
    return all;
}

/* --- data for trying it --- */

enum { MF_ROWS = 60, MF_COLUMNS = 40, MF_RANK = 4, MF_POINTS = 1200 };

static inline void mf_write_points(const char *folder, const char *name, const double *w,
                                   const double *h, uint64_t random)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        mf_fail(path, "cannot be written");
    fprintf(file, "%%%%MatrixMarket matrix coordinate real general\n%% made by the example\n");
    fprintf(file, "%d %d %d\n", MF_ROWS, MF_COLUMNS, MF_POINTS);
    for (int i = 0; i < MF_POINTS; i++) {
        int r = (int)below(&random, MF_ROWS), c = (int)below(&random, MF_COLUMNS);
        double value = 0.05 * (double)normal(&random);
        for (int z = 0; z < MF_RANK; z++)
            value += w[r * MF_RANK + z] * h[c * MF_RANK + z];
        fprintf(file, "%d %d %.17g\n", r + 1, c + 1, value);
    }
    fclose(file);
}

static inline void mf_make_data(const char *folder)
{
    double w[MF_ROWS * MF_RANK], h[MF_COLUMNS * MF_RANK];
    uint64_t random = 3;
    mkdir(folder, 0777);
    for (int i = 0; i < MF_ROWS * MF_RANK; i++)
        w[i] = (double)normal(&random);
    for (int i = 0; i < MF_COLUMNS * MF_RANK; i++)
        h[i] = (double)normal(&random);
    mf_write_points(folder, "train.mmc", w, h, 11);
    mf_write_points(folder, "test.mmc", w, h, 12);
}

#endif
