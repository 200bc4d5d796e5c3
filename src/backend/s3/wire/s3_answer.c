#include "backend/s3/wire/s3_answer.h"

#include <stdio.h>
#include <string.h>

#include "backend/s3/wire/s3_xml.h"

#define PAUSE_FIRST_NS INT64_C(50000000)
#define PAUSE_MAX_NS INT64_C(20000000000)

static int has_code(const ligi_s3_answer *answer, const char *code)
{
    return strcmp(answer->code, code) == 0;
}

/* The server is overloaded or restarting, or it waited too long for our bytes. */
static int is_transient(const ligi_s3_answer *answer)
{
    return answer->http == 500 || answer->http == 502 || answer->http == 503 ||
           answer->http == 504 || answer->http == 429 || answer->http == 408 ||
           has_code(answer, "RequestTimeout") || has_code(answer, "SlowDown") ||
           has_code(answer, "InternalError");
}

ligi_s3_verdict ligi_s3_answer_verdict(const ligi_s3_answer *answer)
{
    switch (answer->link) {
    case LIGI_S3_LINK_UNSENT:
    case LIGI_S3_LINK_LOST: return LIGI_S3_RETRY;
    case LIGI_S3_LINK_UNTRUSTED:
    case LIGI_S3_LINK_MALFORMED:
    case LIGI_S3_LINK_REFUSED: return LIGI_S3_FAILED;
    case LIGI_S3_LINK_OK: break;
    }
    if (answer->http >= 200 && answer->http < 300)
        return LIGI_S3_DONE;
    /* Two writers conflict: the server reports it instead of choosing one. */
    if (is_transient(answer) || has_code(answer, "OperationAborted") ||
        has_code(answer, "ConditionalRequestConflict"))
        return LIGI_S3_RETRY;
    return LIGI_S3_FAILED;
}

ligi_commit_reply ligi_s3_answer_put_reply(const ligi_s3_answer *answer)
{
    switch (answer->link) {
    case LIGI_S3_LINK_UNSENT: return LIGI_REPLY_AGAIN;
    case LIGI_S3_LINK_LOST:
    case LIGI_S3_LINK_MALFORMED: return LIGI_REPLY_LOST;
    case LIGI_S3_LINK_UNTRUSTED:
    case LIGI_S3_LINK_REFUSED: return LIGI_REPLY_REFUSED;
    case LIGI_S3_LINK_OK: break;
    }
    if (answer->http >= 200 && answer->http < 300)
        return LIGI_REPLY_WRITTEN;
    if (answer->http == 412)
        return LIGI_REPLY_EXISTS;
    if (answer->http == 409)
        return LIGI_REPLY_AGAIN;
    return answer->http >= 500 || is_transient(answer) ? LIGI_REPLY_LOST : LIGI_REPLY_REFUSED;
}

void ligi_s3_answer_parse_error(ligi_s3_answer *answer, const char *body, size_t bytes)
{
    ligi_s3_xml xml = ligi_s3_xml_over(body, bytes);
    ligi_s3_xml_event event;
    const struct {
        const char *name;
        char *out;
        size_t out_bytes;
    } fields[] = {{"Code", answer->code, sizeof answer->code},
                  {"Message", answer->message, sizeof answer->message},
                  {"Region", answer->region, sizeof answer->region}};

    while ((event = ligi_s3_xml_next(&xml)) == LIGI_S3_XML_OPEN || event == LIGI_S3_XML_CLOSE)
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            if (event == LIGI_S3_XML_CLOSE && xml.depth == 1 &&
                ligi_s3_xml_is(&xml, event, fields[i].name) &&
                !ligi_s3_xml_text(&xml, fields[i].out, fields[i].out_bytes))
                fields[i].out[0] = '\0';
    /* The text goes into error messages of one line. */
    for (char *c = answer->message; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = ' ';
}

int64_t ligi_s3_answer_pause_ns(const ligi_s3_answer *answer, unsigned attempt, uint64_t random)
{
    int64_t most = PAUSE_MAX_NS;

    if (attempt < 10)
        most = PAUSE_FIRST_NS << (attempt > 0 ? attempt - 1 : 0);
    if (most > PAUSE_MAX_NS)
        most = PAUSE_MAX_NS;
    int64_t pause = most / 2 + (int64_t)(random % (uint64_t)(most / 2));
    int64_t asked = answer->retry_after_s < 20 ? answer->retry_after_s * 1000000000 : PAUSE_MAX_NS;
    return pause > asked ? pause : asked;
}

/* --- sentences ------------------------------------------------------------------------------ */

typedef struct explanation {
    int http;         /* 0: any */
    const char *code; /* NULL: any */
    lig_status status;
    const char *text;
} explanation;

static const explanation explanations[] = {
    {0, "SignatureDoesNotMatch", LIG_E_DENIED,
     "the secret access key is wrong (check AWS_SECRET_ACCESS_KEY or the credentials file)"},
    {0, "InvalidAccessKeyId", LIG_E_DENIED,
     "the server does not recognise the access key (check AWS_ACCESS_KEY_ID or the credentials "
     "file)"},
    {0, "ExpiredToken", LIG_E_DENIED,
     "the session token has expired (renew AWS_SESSION_TOKEN or the credentials file)"},
    {0, "InvalidToken", LIG_E_DENIED, "the session token is invalid (check AWS_SESSION_TOKEN)"},
    {0, "RequestTimeTooSkewed", LIG_E_DENIED,
     "the clocks of this machine and of the server differ by more than 15 minutes (synchronise "
     "this "
     "machine's clock)"},
    {0, "RequestExpired", LIG_E_DENIED,
     "the clocks of this machine and of the server differ by more than 15 minutes (synchronise "
     "this "
     "machine's clock)"},
    {0, "NoSuchBucket", LIG_E_NOTFOUND, "the bucket does not exist (create it, or check its name)"},
    {0, "PermanentRedirect", LIG_E_INVALID,
     "the bucket is in a different region or at a different endpoint"},
    {0, "AuthorizationHeaderMalformed", LIG_E_INVALID, "the bucket is in a different region"},
    {0, "QuotaExceeded", LIG_E_LIMIT,
     "the quota of the bucket or its owner is used up (remove models and run 'ligament compact', "
     "or "
     "raise the quota)"},
    {0, "EntityTooLarge", LIG_E_LIMIT, "the object is larger than the server allows"},
    {0, "NoSuchUpload", LIG_E_IO,
     "the multipart upload was aborted (the writer was stopped for too long, or a lifecycle rule "
     "removes uploads)"},
    {507, NULL, LIG_E_LIMIT, "the server's storage is full"},
    {301, NULL, LIG_E_INVALID, "the bucket is in a different region or at a different endpoint"},
    {307, NULL, LIG_E_INVALID, "the bucket is in a different region or at a different endpoint"},
    {401, NULL, LIG_E_DENIED, "the server does not accept the credentials"},
    {403, NULL, LIG_E_DENIED, "access denied (check the rights of this access key to the bucket)"},
    {404, NULL, LIG_E_NOTFOUND, "the object does not exist"},
    {405, NULL, LIG_E_UNSUPPORTED, "the server does not support this operation"},
    {501, NULL, LIG_E_UNSUPPORTED, "the server does not support this operation"},
};

static const explanation *explain(const ligi_s3_answer *answer)
{
    for (size_t i = 0; i < sizeof explanations / sizeof *explanations; i++) {
        const explanation *one = &explanations[i];
        if ((one->http == 0 || one->http == answer->http) &&
            (one->code == NULL || has_code(answer, one->code)))
            return one;
    }
    return NULL;
}

static lig_status fail_link(const ligi_engine_host *host, const ligi_s3_answer *answer,
                            const ligi_s3_subject *subject)
{
    const char *key = subject->key != NULL ? subject->key : "";
    const char *why = answer->message[0] != '\0' ? answer->message : "no answer";

    switch (answer->link) {
    case LIGI_S3_LINK_UNSENT:
        return host->fail(LIG_E_IO, "s3: %s s3://%s/%s: no connection to %s: %s", subject->what,
                          subject->bucket, key, subject->endpoint, why);
    case LIGI_S3_LINK_UNTRUSTED:
        return host->fail(LIG_E_DENIED,
                          "s3: %s s3://%s/%s: the certificate of %s is not trusted: %s (give the "
                          "certificate of its authority with ?ca=FILE)",
                          subject->what, subject->bucket, key, subject->endpoint, why);
    case LIGI_S3_LINK_MALFORMED:
        return host->fail(LIG_E_IO,
                          "s3: %s s3://%s/%s: invalid response from %s: %s (is it an S3 endpoint?)",
                          subject->what, subject->bucket, key, subject->endpoint, why);
    case LIGI_S3_LINK_REFUSED:
    case LIGI_S3_LINK_LOST:
    case LIGI_S3_LINK_OK: break;
    }
    return host->fail(LIG_E_IO, "s3: %s s3://%s/%s: the connection to %s failed: %s", subject->what,
                      subject->bucket, key, subject->endpoint, why);
}

static int is_elsewhere(const ligi_s3_answer *answer)
{
    return answer->http == 301 || answer->http == 307 || has_code(answer, "PermanentRedirect") ||
           has_code(answer, "AuthorizationHeaderMalformed");
}

lig_status ligi_s3_answer_fail(const ligi_engine_host *host, const ligi_s3_answer *answer,
                               const ligi_s3_subject *subject)
{
    const char *key = subject->key != NULL ? subject->key : "";
    const explanation *known = explain(answer);

    if (answer->link != LIGI_S3_LINK_OK)
        return fail_link(host, answer, subject);
    if (is_elsewhere(answer))
        return host->fail(
            LIG_E_INVALID,
            "s3: %s s3://%s/%s: the bucket is in region '%s', but requests were signed "
            "for '%s' (set ?region= and ?endpoint=)",
            subject->what, subject->bucket, key,
            answer->region[0] != '\0' ? answer->region : "unknown", subject->region);
    if (subject->anonymous && (answer->http == 403 || answer->http == 401))
        return host->fail(LIG_E_DENIED,
                          "s3: %s s3://%s/%s: access denied without credentials (set "
                          "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)",
                          subject->what, subject->bucket, key);
    if (known != NULL)
        return host->fail(known->status, "s3: %s s3://%s/%s: %s [HTTP %d%s%s]", subject->what,
                          subject->bucket, key, known->text, answer->http,
                          answer->code[0] != '\0' ? " " : "", answer->code);
    return host->fail(LIG_E_IO, "s3: %s s3://%s/%s: %s answered HTTP %d%s%s%s%s", subject->what,
                      subject->bucket, key, subject->endpoint, answer->http,
                      answer->code[0] != '\0' ? " " : "", answer->code,
                      answer->message[0] != '\0' ? ": " : "", answer->message);
}
