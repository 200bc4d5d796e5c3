#include "backend/s3/wire/s3_xml.h"

#include <stdio.h>

#include "backend/s3/wire/s3_list.h"
#include "base/test.h"

/* The whole document as a string: "<name" for OPEN, "text>" for CLOSE. */
static ligi_s3_xml_event walk(const char *document, char *out, size_t out_bytes)
{
    ligi_s3_xml xml = ligi_s3_xml_over(document, strlen(document));
    ligi_s3_xml_event event;
    char text[64];
    size_t used = 0;

    out[0] = '\0';
    while ((event = ligi_s3_xml_next(&xml)) == LIGI_S3_XML_OPEN || event == LIGI_S3_XML_CLOSE) {
        if (event == LIGI_S3_XML_OPEN)
            used +=
                (size_t)snprintf(out + used, out_bytes - used, "<%.*s",
                                 (int)xml.open[xml.depth - 1].bytes, xml.open[xml.depth - 1].data);
        else
            used += (size_t)snprintf(out + used, out_bytes - used, "|%s>",
                                     ligi_s3_xml_text(&xml, text, sizeof text) ? text : "?");
    }
    return event;
}

static void test_documents(void **state)
{
    const struct {
        const char *document, *seen;
    } good[] = {
        {"<?xml version=\"1.0\"?>\n<a><b>x</b><c/></a>\n", "<a<b|x><c|>|>"},
        {"<a x='>' y=\"/>\">t</a>", "<a|t>"},
        {"<s:a xmlns:s=\"u\"><s:b >1</s:b ></s:a>", "<a<b|1>|>"},
        {"<a>&lt;&amp;&gt;&quot;&apos;&#65;&#x42;&#xe9;&#x20AC;&#x1F600;</a>",
         "<a|<&>\"'AB\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80>"},
        {"<a>x<!-- <b> -->y<![CDATA[<z>&amp;]]>z</a>", "<a|xy<z>&amp;z>"},
        {"<a>&nope;</a>", "<a|?>"},
        {"<a>&#0;</a>", "<a|?>"},
        {"<a>&#xD800;</a>", "<a|?>"},
        {"<a>&#99999999999;</a>", "<a|?>"},
        {"<a>&</a>", "<a|?>"},
        {"<a>0123456789012345678901234567890123456789012345678901234567890123</a>", "<a|?>"},
    };
    const char *const bad[] = {"",
                               "text",
                               "<a>",
                               "<a></b>",
                               "</a>",
                               "<a/><b/>",
                               "<a>x</a>y",
                               "<a",
                               "<a x='",
                               "<a><!-- ",
                               "<a><![CDATA[x]]",
                               "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
                               "<?xml",
                               "<>x</>",
                               "<a <b/>",
                               "<a></a",
                               "<a></a <"};
    char seen[256];

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(walk(good[i].document, seen, sizeof seen), LIGI_S3_XML_END);
        assert_string_equal(seen, good[i].seen);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (walk(bad[i], seen, sizeof seen) != LIGI_S3_XML_BAD)
            fail_msg("'%s' was accepted", bad[i]);
}

static void test_depth(void **state)
{
    char document[256] = "", seen[256];

    (void)state;
    for (int i = 0; i < LIGI_S3_XML_DEPTH_MAX + 1; i++)
        memcpy(document + 3 * i, "<a>", 4);
    assert_int_equal(walk(document, seen, sizeof seen), LIGI_S3_XML_BAD);
}

typedef struct items {
    size_t count, most;
    ligi_s3_list_item last;
} items;

static int take(void *context, const ligi_s3_list_item *item)
{
    items *all = context;

    all->last = *item;
    return ++all->count == all->most;
}

static int parse(const char *document, items *all, int *truncated)
{
    return ligi_s3_list_parse(document, strlen(document), take, all, truncated);
}

static void test_lists(void **state)
{
    items all = {0};
    int truncated;
    const char *two =
        "<ListBucketResult><Name>b</Name><Prefix>p</Prefix><IsTruncated>true</IsTruncated>"
        "<Contents><Key>p/1</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified>"
        "<Size>434234</Size><Owner><ID>Key</ID><Key>inner</Key></Owner></Contents>"
        "<Contents><Key>p/&amp;2</Key><Size>5</Size></Contents></ListBucketResult>";

    (void)state;
    assert_true(parse(two, &all, &truncated));
    assert_int_equal(all.count, 2);
    assert_true(truncated);
    assert_string_equal(all.last.key, "p/&2");
    assert_int_equal(all.last.bytes, 5);
    assert_int_equal(all.last.date_s, 0);
    all = (items){.most = 1};
    assert_true(parse(two, &all, &truncated));
    assert_string_equal(all.last.key, "p/1");
    assert_int_equal(all.last.date_s, 1255369830);
    assert_int_equal(all.last.bytes, 434234);
    all = (items){0};
    assert_true(parse("<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>2~x</UploadId>"
                      "<Initiated>2010-11-10T20:48:33.000Z</Initiated></Upload>"
                      "<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>",
                      &all, &truncated));
    assert_string_equal(all.last.upload, "2~x");
    assert_false(truncated);
    assert_false(parse("<ListBucketResult><Contents><Key>x</Key></Contents>", &all, &truncated));
    assert_false(parse("<html><body>", &all, &truncated));
}

static void test_uploads(void **state)
{
    char id[LIGI_S3_UPLOAD_BYTES];
    const char *started = "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key>"
                          "<UploadId>abc</UploadId></InitiateMultipartUploadResult>";
    const char *done = "<CompleteMultipartUploadResult><ETag>x</ETag>"
                       "</CompleteMultipartUploadResult>";
    const char *error = "<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>";

    (void)state;
    assert_true(ligi_s3_upload_parse(started, strlen(started), id));
    assert_string_equal(id, "abc");
    assert_false(ligi_s3_upload_parse(started, strlen(started) - 5, id));
    assert_false(ligi_s3_upload_parse(error, strlen(error), id));
    assert_true(ligi_s3_complete_parse(done, strlen(done)));
    assert_false(ligi_s3_complete_parse(done, strlen(done) - 1));
    assert_false(ligi_s3_complete_parse(error, strlen(error)));
    assert_false(ligi_s3_complete_parse("", 0));
    assert_int_equal(ligi_s3_date_parse("Mon, 12 Oct 2009 17:50:30 GMT"), 1255369830);
    assert_int_equal(ligi_s3_date_parse("soon"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_uploads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
