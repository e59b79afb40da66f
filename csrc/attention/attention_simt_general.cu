// Attention by ordinary arithmetic, with dropout or of packed sequences; and the spans of packed sequences, for all engines.
#include "attention/simt_kernels.cuh"

namespace {

/// Writes what each row sees of the columns' tokens: those of its sequence, with the causal mask as in `Visible`. Rows are queries or
/// keys. `row_starts` and `column_starts` have the first token of each sequence, and one past the last.
GW_DEVICE void spans(Span* out, const u32* row_starts, const u32* column_starts, i64 sequences, i64 rows, bool causal, bool of_keys) {
    for (i64 row = thread_index(); row < rows; row += thread_count()) {
        // The last sequence that begins at this row or before: later ones of that beginning are not empty.
        i64 low = 0, high = sequences - 1;
        while (low < high) {
            const i64 middle = (low + high + 1) / 2;
            if (row_starts[middle] <= row) low = middle; else high = middle - 1;
        }
        const int begin = static_cast<int>(column_starts[low]), end = static_cast<int>(column_starts[low + 1]);
        Span span{begin, end};
        if (causal) {
            // The last query of a sequence sees its last key.
            const int bound = static_cast<int>(row) + end - static_cast<int>(row_starts[low + 1]);
            const int here = of_keys ? bound : bound + 1, inside = here < begin ? begin : here > end ? end : here;
            (of_keys ? span.begin : span.end) = inside;
        }
        out[row] = span;
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256) gw_attention_spans(
    Span* out, const u32* row_starts, const u32* column_starts, i64 sequences, i64 rows, i32 causal, i32 of_keys) {
    begin_kernel();
    spans(out, row_starts, column_starts, sequences, rows, causal != 0, of_keys != 0);
}

#define GW_KERNELS(T, NAME) GW_SIMT_KERNELS(T, NAME, simt_general, true)
GW_FOR_DTYPES(GW_KERNELS)
