/* The share of a parameter that decides everything is near 1, of one without effect 0 on average; ranks make it
 * independent of scales. */
#include "report/sweep_data.h"

#include <math.h>

#include "base/numbers/rng.h"
#include "check_main.h"

enum { N = 400 };

struct sample {
    double metric[N], first[N], second[N], word[N];
};

/* metric: mostly of first, a little of word, nothing of second. */
static struct sample draw(uint64_t seed) {
    static struct sample s;
    struct rng rng;
    rng_seed(&rng, seed);
    for (int i = 0; i < N; i++) {
        s.first[i] = rng_uniform53(&rng);
        s.second[i] = rng_uniform53(&rng);
        s.word[i] = floor(rng_uniform53(&rng) * 3);
        s.metric[i] = (s.first[i] - 0.3) * (s.first[i] - 0.3) * 4 + 0.1 * s.word[i] + 0.02 * rng_uniform53(&rng);
    }
    return s;
}

TEST(shares_follow_effects) {
    struct sample s = draw(1);
    double first = importance_share(s.metric, s.first, N, true), word = importance_share(s.metric, s.word, N, false);
    ck_assert_double_gt(first, 0.85);
    ck_assert_double_lt(first, 1);
    ck_assert_double_gt(word, 0.01);
    ck_assert_double_lt(word, 0.2);
}

/* Without the correction for chance the mean would be (groups - 1) / (N - 1) = 0.018. */
TEST(no_effect_is_zero_on_average) {
    double sum = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct sample s = draw(seed);
        sum += importance_share(s.metric, s.second, N, true) / 200;
    }
    ck_assert_double_lt(sum, 0.008); /* negative ones count as 0 */
}

TEST(scales_do_not_matter) {
    struct sample s = draw(3), t = s;
    for (int i = 0; i < N; i++) {
        t.metric[i] = exp(20 * s.metric[i]);
        t.first[i] = exp(-20 * s.first[i]) * 1e-9;
    }
    double a = importance_share(s.metric, s.first, N, true), b = importance_share(t.metric, t.first, N, true);
    ck_assert_double_eq_tol(a, b, 1e-12);
    ck_assert_double_eq_tol(importance_correlation(s.metric, s.first, N), -importance_correlation(t.metric, t.first, N),
                            1e-12);
}

TEST(what_has_no_share) {
    struct sample s = draw(4);
    double same[N] = {0}, missing[N];
    for (int i = 0; i < N; i++) missing[i] = i % 2 ? NAN : 1;
    ck_assert(isnan(importance_share(s.metric, s.first, 9, true)));
    ck_assert(!isnan(importance_share(s.metric, s.first, 10, true)));
    ck_assert(isnan(importance_share(same, s.first, N, true)));
    ck_assert(isnan(importance_share(s.metric, same, N, true)));
    ck_assert(!isnan(importance_share(s.metric, missing, N, true)));
    ck_assert(isnan(importance_share(s.metric, s.first, N, false))); /* each value a group */
    ck_assert(isnan(importance_correlation(s.metric, missing, N)));
    ck_assert(isnan(importance_correlation(s.metric, same, N)));
}

/* scipy.stats.spearmanr([1, 2, 2, 4, 5, 9], [3, 1, 1, 8, 8, 7]) */
TEST(correlation_is_spearmans) {
    static const double a[] = {1, 2, 2, 4, 5, 9}, b[] = {3, 1, 1, 8, 8, 7};
    ck_assert_double_eq_tol(importance_correlation(a, b, 6), 0.6269355057278587, 1e-12);
    ck_assert_double_eq_tol(importance_correlation(a, a, 6), 1, 1e-12);
}

CHECK_MAIN("importance")
