//! Functions of one number, as C.

use gradewise_autograd::formula::Function;
use gradewise_core::DType;
use std::collections::BTreeSet;

/// The functions that a file needs, each for `float` or `double`.
#[derive(Default)]
pub(crate) struct Functions {
    unary: BTreeSet<(Function, bool)>,
    /// The larger and the smaller of two numbers.
    extremes: BTreeSet<(bool, bool)>,
}

/// What a function is made of besides operators.
fn parts(function: Function) -> &'static [Function] {
    match function {
        Function::Sigmoid | Function::Tanh => &[Function::Exp],
        Function::Silu | Function::SiluDerivative => &[Function::Exp, Function::Sigmoid],
        Function::GeluDerivative => &[Function::Exp],
        _ => &[],
    }
}

fn base(function: Function) -> &'static str {
    match function {
        Function::Abs => "abs",
        Function::Cos => "cos",
        Function::Erf => "erf",
        Function::Exp => "exp",
        Function::Gelu => "gelu",
        Function::GeluDerivative => "gelu_derivative",
        Function::Log => "log",
        Function::Recip => "recip",
        Function::Relu => "relu",
        Function::Rsqrt => "rsqrt",
        Function::Sigmoid => "sigmoid",
        Function::Silu => "silu",
        Function::SiluDerivative => "silu_derivative",
        Function::Sin => "sin",
        Function::Sqrt => "sqrt",
        Function::Square => "square",
        Function::Tanh => "tanh",
    }
}

impl Functions {
    /// The call of a function of `x`.
    pub fn call(&mut self, prefix: &str, function: Function, dtype: DType, x: &str) -> String {
        let double = dtype == DType::F64;
        let suffix = if double { "" } else { "f" };
        let of_math = match function {
            Function::Abs => Some("fabs"),
            Function::Cos => Some("cos"),
            Function::Sin => Some("sin"),
            Function::Sqrt => Some("sqrt"),
            Function::Erf => Some("erf"),
            Function::Exp if double => Some("exp"),
            Function::Log if double => Some("log"),
            Function::Tanh if double => Some("tanh"),
            _ => None,
        };
        if let Some(name) = of_math {
            return format!("{name}{suffix}({x})");
        }
        self.unary.extend(parts(function).iter().map(|&part| (part, double)));
        self.unary.insert((function, double));
        format!("{prefix}_{}{suffix}({x})", base(function))
    }

    /// The definitions, what is called first.
    pub fn definitions(&self, prefix: &str) -> String {
        let mut order: Vec<(Function, bool)> = self.unary.iter().copied().collect();
        order.sort_by_key(|&(function, double)| (parts(function).len(), function, double));
        let extreme = |&(larger, double): &(bool, bool)| {
            let (kind, suffix) = if double { ("double", "") } else { ("float", "f") };
            let (name, sign) = if larger { ("max", '>') } else { ("min", '<') };
            format!(
                "static inline {kind} {prefix}_{name}{suffix}({kind} a, {kind} b)\n{{\n    return a {sign} b ? a : b;\n}}\n"
            )
        };
        let of_bits =
            [(Function::Exp, false), (Function::Log, false)].iter().any(|own| self.unary.contains(own));
        let bits = of_bits.then(|| BITS.replace("P_", &format!("{prefix}_")));
        let unary = order.into_iter().map(|(function, double)| definition(prefix, function, double));
        bits.into_iter().chain(unary).chain(self.extremes.iter().map(extreme)).collect()
    }

    /// The call of the larger or the smaller of two numbers; the second if one is NaN.
    pub fn extreme(&mut self, prefix: &str, larger: bool, dtype: DType, a: &str, b: &str) -> String {
        let double = dtype == DType::F64;
        self.extremes.insert((larger, double));
        let (name, suffix) = (if larger { "max" } else { "min" }, if double { "" } else { "f" });
        format!("{prefix}_{name}{suffix}({a}, {b})")
    }
}

/// What the functions in `float` below choose by: bits of numbers, because compilers make no vectors of branches on numbers, nor of stores to
/// parts of a union.
const BITS: &str = "\
static inline int P_bits(float x)
{
    union { float number; int bits; } u;
    u.number = x;
    return u.bits;
}
static inline float P_of_bits(int x)
{
    union { int bits; float number; } u;
    u.bits = x;
    return u.number;
}
static inline int P_choose(int c, int a, int b)
{
    return (a & -c) | (b & (c - 1));
}
";

/// `e^x` in `float`: 2^k times the series to the seventh power for |r| ≤ ln 2/2, whose remainder is 5·10⁻⁹. Beyond ±104 it is 0 or ∞.
const EXP: &str = "\
static inline float P_expf(float x)
{
    const int given = P_bits(x), magnitude = given & 2147483647, sign = given - magnitude;
    const float c = P_of_bits(sign | P_choose(magnitude < 1120927744, magnitude, 1120927744));
    const int k = (int)(c * 1.44269504f + P_of_bits(sign | 1056964608));
    const float r = (c - (float)k * 0.693359375f) + (float)k * 2.12194440e-4f;
    float p = 1.0f / 720.0f + r * (1.0f / 5040.0f);
    p = 1.0f / 24.0f + r * (1.0f / 120.0f + r * p);
    p = 1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6.0f + r * p)));
    p = p * P_of_bits((k / 2 + 127) * 8388608) * P_of_bits((k - k / 2 + 127) * 8388608);
    return P_of_bits(P_choose(magnitude > 2139095040, given, P_bits(p)));
}
";

/// The logarithm in `float`: that of the power of two, and 2·artanh of the rest by its series, whose remainder is 2·10⁻⁹.
const LOG: &str = "\
static inline float P_logf(float x)
{
    const int given = P_bits(x), small = given < 8388608;
    const int bits = P_bits(x * P_of_bits(1065353216 + small * 192937984));
    const int mantissa = (bits & 8388607) | 1065353216, above = mantissa > 1068827891;
    const int k = ((bits >> 23) & 255) - 127 - small * 23 + above;
    const float m = P_of_bits(mantissa - above * 8388608), s = (m - 1.0f) / (m + 1.0f), z = s * s;
    float y = 2.0f / 7.0f + z * (2.0f / 9.0f);
    y = s * z * (2.0f / 3.0f + z * (2.0f / 5.0f + z * y));
    y = (float)k * 0.693359375f + (2.0f * s + (y - (float)k * 2.12194440e-4f));
    y = P_of_bits(P_choose((given & 2147483647) == 0, -8388608, P_choose(given < 0, 2143289344, P_bits(y))));
    return P_of_bits(P_choose(given >= 2139095040, given, P_bits(y)));
}
";

fn definition(prefix: &str, function: Function, double: bool) -> String {
    let body = match (function, double) {
        (Function::Exp, false) => return EXP.replace("P_", &format!("{prefix}_")),
        (Function::Log, false) => return LOG.replace("P_", &format!("{prefix}_")),
        (Function::Recip, _) => "1L / x",
        (Function::Square, _) => "x * x",
        (Function::Relu, _) => "x > 0L ? x : 0L",
        (Function::Rsqrt, _) => "1L / sqrtS(x)",
        (Function::Sigmoid, true) => "1L / (1L + exp(-x))",
        (Function::Sigmoid, false) => "1L / (1L + P_expf(-x))",
        (Function::Silu, _) => "x * P_sigmoidS(x)",
        (Function::SiluDerivative, _) => "P_sigmoidS(x) * (1L + x * (1L - P_sigmoidS(x)))",
        (Function::Gelu, _) => "0.5L * x * (1L + erfS(x * 0.70710678118654752L))",
        (Function::GeluDerivative, true) => {
            "0.5L * (1L + erfS(x * 0.70710678118654752L)) + x * 0.39894228040143268L * exp(-0.5L * x * x)"
        }
        (Function::GeluDerivative, false) => {
            "0.5L * (1L + erfS(x * 0.70710678118654752L)) + x * 0.39894228040143268L * P_expf(-0.5L * x * x)"
        }
        // Near 0 the series, because 1 - e^-2x loses digits there; its remainder is 2e-9 of the result.
        (Function::Tanh, _) => {
            "x * x < 0.04L ? x * (1L + x * x * (-1L / 3L + x * x * (2L / 15L + x * x * (-17L / 315L + x * x * (62L / 2835L))))) \
             : 1L - 2L / (1L + P_expf(2L * x))"
        }
        // Called by their names in <math.h>.
        (Function::Abs | Function::Cos | Function::Sin | Function::Sqrt | Function::Erf, _)
        | (Function::Exp | Function::Log, true) => return String::new(),
    };
    let (kind, suffix, literal) = if double { ("double", "", ".0") } else { ("float", "f", ".0f") };
    let body = literals(body, literal, suffix);
    let body = body.replace("P_", &format!("{prefix}_")).replace("S(", &format!("{suffix}("));
    format!(
        "static inline {kind} {prefix}_{}{suffix}({kind} x)\n{{\n    return {body};\n}}\n",
        base(function)
    )
}

/// Numbers, which end in `L` in the texts above, as literals of a type.
fn literals(text: &str, whole: &str, suffix: &str) -> String {
    let mut result = String::new();
    let mut number = String::new();
    for letter in text.chars() {
        match letter {
            '0'..='9' | '.' => number.push(letter),
            'L' if !number.is_empty() => {
                let ending = if number.contains('.') { suffix } else { whole };
                result.push_str(&std::mem::take(&mut number));
                result.push_str(ending);
            }
            _ => {
                result.push_str(&std::mem::take(&mut number));
                result.push(letter);
            }
        }
    }
    result + &number
}
