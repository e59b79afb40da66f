//! Operations by name: every one can be run again from its name, what it was told ([`Attributes`]) and its inputs.

use crate::{
    Attributes, Error, Result, Tensor, add_n,
    clifford::{
        self, CliffordLayer, LayerOptions, MvBlock, ProductOptions, Steerable, SteerableLayer, bias_of,
        primitives::table_product,
    },
    concat,
    ops::attention::packed,
};
use gradewise_core::{Algebra, Shape, Signature};
use gradewise_kernels::{
    Array, Index, Positions,
    ops::{
        AttentionOptions, CrossEntropyOptions, RotaryTable,
        clifford::table_product::{Table, TableTerm},
    },
};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

/// The names of the operations of this crate, in order.
pub const OPERATIONS: &[&str] = &[
    "abs",
    "add",
    "add_n",
    "add_scalar",
    "attention",
    "broadcast_to",
    "cast",
    "clamp",
    "clifford_layer",
    "concat",
    "concat_segment_mean",
    "contiguous",
    "cos",
    "cross_entropy",
    "cumsum",
    "div",
    "edge_difference",
    "embed",
    "erf",
    "exp",
    "fc_clifford_layer",
    "fcgp",
    "gather",
    "gelu",
    "gelu_fcgp_norm",
    "gelu_sgp_norm",
    "index_select",
    "layer_norm",
    "log",
    "log_softmax",
    "matmul",
    "max",
    "maximum",
    "mean_squared_error",
    "mul",
    "mul_scalar",
    "mv_block",
    "mv_layer_norm",
    "mv_linear",
    "mv_normalization",
    "mv_silu",
    "net_inflow",
    "permute",
    "pow",
    "recip",
    "relu",
    "reshape",
    "rms_norm",
    "rotary",
    "rsqrt",
    "scatter_add",
    "segment_spread",
    "segment_sum",
    "select",
    "sgp",
    "sigmoid",
    "silu",
    "sin",
    "slice",
    "softmax",
    "sort",
    "sqrt",
    "square",
    "steerable_gp",
    "steerable_layer",
    "sub",
    "sum",
    "sum_to",
    "table_product",
    "tanh",
    "top_k",
    "transpose",
];

/// What an operation is run again from.
struct Recipe<'a> {
    name: &'static str,
    told: &'a Attributes,
    inputs: &'a [Tensor],
}

impl Recipe<'_> {
    fn input(&self, index: usize) -> Result<&Tensor> {
        self.inputs.get(index).ok_or_else(|| {
            self.refuse(format!("{} inputs are there, input {index} is needed", self.inputs.len()))
        })
    }

    fn refuse(&self, message: String) -> Error {
        Error::Argument { operation: self.name, message }
    }

    fn get<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        self.told.get(self.name, name)
    }

    fn list<T: std::str::FromStr>(&self, name: &str) -> Result<Vec<T>> {
        self.told.get_list(self.name, name)
    }

    fn shape(&self) -> Result<Shape> {
        Ok(Shape::from(self.list::<usize>("shape")?))
    }

    fn pair(&self, name: &str) -> Result<[usize; 2]> {
        self.list(name)?
            .try_into()
            .map_err(|list| self.refuse(format!("`{name}` is {list:?}, expected two numbers")))
    }

    fn algebra(&self) -> Result<Algebra> {
        let signature: Signature = self.get("signature")?;
        Ok(Algebra::new(signature)?)
    }

    fn index(&self, name: &str) -> Result<Index> {
        Ok(Index::new(&self.list(name)?, self.get("bound")?, &self.input(0)?.device())?)
    }

    fn positions(&self) -> Result<Positions> {
        let values: Vec<usize> = self.list("positions")?;
        Ok(Positions::new(&values, self.shape()?, self.get("bound")?, &self.input(0)?.device())?)
    }

    fn product(&self) -> Result<ProductOptions> {
        Ok(ProductOptions { gate: self.get("gate")?, normalize: self.get("normalize")? })
    }

    fn attention(&self) -> Result<AttentionOptions> {
        let q = self.input(0)?;
        let lengths = self.told.has("lengths").then(|| self.index("lengths")).transpose()?;
        let mask = || -> Result<Array> {
            let (values, shape): (Vec<f64>, Vec<usize>) = (self.list("mask")?, self.list("mask_shape")?);
            Ok(Array::from_f64(&values, shape, q.dtype(), &q.device())?)
        };
        let mask = self.told.has("mask").then(mask).transpose()?;
        let scale = self.list("scale")?.first().copied();
        Ok(AttentionOptions { causal: self.get("causal")?, scale, lengths, mask })
    }

    fn table(&self) -> Result<Arc<Table>> {
        let sizes: Vec<usize> = self.list("sizes")?;
        let [a, b, out] = sizes[..] else {
            return Err(self.refuse(format!("`sizes` is {sizes:?}, expected three numbers")));
        };
        let terms: Vec<i32> = self.list("terms")?;
        let terms = terms.chunks_exact(4).map(|term| TableTerm {
            a: term[0] as u16,
            b: term[1] as u16,
            out: term[2] as u16,
            sign: term[3] as i8,
        });
        Ok(Arc::new(Table::new(a, b, out, terms)))
    }

    fn block(&self) -> Result<Tensor> {
        let Some(operands) = MvBlock::from_all(self.inputs) else {
            return Err(self.refuse(format!("{} inputs are there, expected 11 or 12", self.inputs.len())));
        };
        clifford::mv_block(&self.algebra()?, &operands)
    }

    fn layer(&self, fully_connected: bool) -> Result<Tensor> {
        let bias = bias_of(self.name, &self.get::<String>("bias")?)?;
        let bias = bias.map(|kind| Ok::<_, Error>((self.input(3)?, kind))).transpose()?;
        let (x, linear, w) = (self.input(0)?, self.input(1)?, self.input(2)?);
        let options =
            LayerOptions { fully_connected, product: self.product()?, recompute: self.get("recompute")? };
        clifford::clifford_layer(&self.algebra()?, &CliffordLayer { x, linear, bias, w }, options)
    }

    fn steerable(&self) -> Result<Tensor> {
        let (x, right, a, w) = (self.input(0)?, self.input(1)?, self.input(2)?, self.input(3)?);
        let algebra = self.algebra()?;
        if self.name == "steerable_gp" {
            let left = self.inputs.get(4);
            return clifford::steerable_product(&algebra, &Steerable { x, right, a, w, left });
        }
        let left = self.inputs.get(4).zip(self.inputs.get(5));
        clifford::steerable_layer(&algebra, &SteerableLayer { x, right, a, w, left })
    }

    fn run(&self) -> Result<Tensor> {
        let x = self.input(0)?;
        let axis = || self.get::<usize>("axis");
        match self.name {
            "abs" => x.abs(),
            "cos" => x.cos(),
            "erf" => x.erf(),
            "exp" => x.exp(),
            "gelu" => x.gelu(),
            "log" => x.log(),
            "recip" => x.recip(),
            "relu" => x.relu(),
            "rsqrt" => x.rsqrt(),
            "sigmoid" => x.sigmoid(),
            "silu" => x.silu(),
            "sin" => x.sin(),
            "sqrt" => x.sqrt(),
            "square" => x.square(),
            "tanh" => x.tanh(),
            "contiguous" => x.contiguous(),
            "add" => x.add(self.input(1)?),
            "sub" => x.sub(self.input(1)?),
            "mul" => x.mul(self.input(1)?),
            "div" => x.div(self.input(1)?),
            "maximum" => x.maximum(self.input(1)?),
            "mean_squared_error" => x.mean_squared_error(self.input(1)?),
            "add_scalar" => x.add_scalar(self.get("value")?),
            "mul_scalar" => x.mul_scalar(self.get("value")?),
            "pow" => x.pow(self.get("exponent")?),
            "clamp" => x.clamp(self.get("low")?, self.get("high")?),
            "cast" => {
                let dtype: String = self.get("dtype")?;
                x.cast(dtype.parse()?)
            }
            "matmul" => {
                x.matmul_transposed(self.input(1)?, self.get("transpose_self")?, self.get("transpose_other")?)
            }
            "sum" => x.sum(&self.list("axes")?, self.get("keep")?),
            "max" => x.max(&self.list("axes")?, self.get("keep")?),
            "cumsum" => x.cumsum(axis()?, self.get("reverse")?),
            "sum_to" => x.sum_to(&self.shape()?),
            "softmax" => x.softmax(axis()?),
            "log_softmax" => x.log_softmax(axis()?),
            "layer_norm" => {
                let weight = self.get::<bool>("weight")?.then(|| self.input(1)).transpose()?;
                let bias = if self.get("bias")? { self.inputs.last() } else { None };
                x.layer_norm(weight, bias, self.get("epsilon")?)
            }
            "rms_norm" => x.rms_norm(self.inputs.get(1), self.get("epsilon")?),
            "select" => {
                let mask = Array::from_f64(&self.list("mask")?, self.list("shape")?, x.dtype(), &x.device())?;
                x.select(&mask, self.input(1)?)
            }
            "add_n" => add_n(&self.inputs.iter().collect::<Vec<_>>()),
            "concat" => concat(&self.inputs.iter().collect::<Vec<_>>(), axis()?),
            "reshape" => x.reshape(self.shape()?),
            "permute" => x.permute(&self.list("axes")?),
            "transpose" => self.pair("axes").and_then(|[a, b]| x.transpose(a, b)),
            "slice" => self.pair("range").and_then(|[start, end]| x.slice(axis()?, start..end)),
            "embed" => {
                let mut shape = x.shape().to_vec();
                let axis = axis()?;
                *shape.get_mut(axis).ok_or_else(|| self.refuse(format!("there is no axis {axis}")))? =
                    self.get("size")?;
                x.embed(&Shape::from(shape), axis, self.get("start")?)
            }
            "broadcast_to" => x.broadcast_to(&self.shape()?),
            "index_select" => x.index_select(axis()?, &self.index("index")?),
            "segment_sum" => x.segment_sum(axis()?, &self.index("index")?),
            "edge_difference" => {
                x.edge_difference(self.inputs.get(1), &self.index("receivers")?, &self.index("senders")?)
            }
            "net_inflow" => x.net_inflow(&self.index("receivers")?, &self.index("senders")?),
            "concat_segment_mean" => x.concat_segment_mean(self.input(1)?, &self.index("segments")?),
            "segment_spread" => x.segment_spread(&self.index("segments")?),
            "gather" | "sort" | "top_k" => x.gather(axis()?, &self.positions()?),
            "scatter_add" => x.scatter_add(axis()?, &self.positions()?, self.get("size")?),
            "rotary" => {
                let (cos, sin): (Vec<f64>, Vec<f64>) = (self.list("cos")?, self.list("sin")?);
                let positions = self.get("positions")?;
                let table = RotaryTable::of_parts([&cos, &sin], positions, x.dtype(), &x.device())?;
                x.turn(&table, self.get("inverse")?)
            }
            "attention" if self.inputs.len() == 1 => packed(x, &self.attention()?),
            "attention" => x.attention(self.input(1)?, self.input(2)?, &self.attention()?),
            "cross_entropy" => {
                let options = CrossEntropyOptions {
                    ignore: self.list("ignore")?.first().copied(),
                    label_smoothing: self.get("label_smoothing")?,
                };
                x.cross_entropy(&self.index("targets")?, &options)
            }
            "table_product" => table_product(&self.table()?, x, self.input(1)?),
            "sgp" | "gelu_sgp_norm" => {
                clifford::sgp(&self.algebra()?, x, self.input(1)?, self.input(2)?, self.product()?)
            }
            "fcgp" | "gelu_fcgp_norm" => {
                clifford::fcgp(&self.algebra()?, x, self.input(1)?, self.input(2)?, self.product()?)
            }
            "mv_linear" => {
                let bias = bias_of(self.name, &self.get::<String>("bias")?)?;
                let bias = bias.map(|kind| Ok::<_, Error>((self.input(2)?, kind))).transpose()?;
                clifford::mv_linear(&self.algebra()?, x, self.input(1)?, bias)
            }
            "mv_silu" => clifford::mv_silu(&self.algebra()?, x, self.input(1)?, self.input(2)?),
            "mv_normalization" => clifford::mv_normalization(&self.algebra()?, x, self.input(1)?),
            "mv_layer_norm" => clifford::mv_layer_norm(&self.algebra()?, x, self.input(1)?),
            "clifford_layer" => self.layer(false),
            "fc_clifford_layer" => self.layer(true),
            "steerable_gp" | "steerable_layer" => self.steerable(),
            "mv_block" => self.block(),
            other => Err(self.refuse(format!("there is no recipe for `{other}`"))),
        }
    }
}

type Maker = Arc<dyn Fn(&Attributes, &[Tensor]) -> Result<Tensor> + Send + Sync>;

static REGISTERED: RwLock<BTreeMap<&'static str, Maker>> = RwLock::new(BTreeMap::new());

/// Lets [`rerun`] run an operation of the user's; a later one of the same name takes its place.
pub fn register(
    name: &'static str,
    run: impl Fn(&Attributes, &[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::new(run));
}

/// Runs the operation called `name` on `inputs`, told what `attributes` say.
///
/// # Errors
/// [`Error::Argument`] for an operation that there is not, with those there are, or attributes that are missing; from the
/// operation.
pub fn rerun(name: &str, attributes: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    if let Some(run) = registered {
        return run(attributes, inputs);
    }
    let Some(&name) = OPERATIONS.iter().find(|known| **known == name) else {
        let message = format!("there is no operation `{name}`; there are {}", OPERATIONS.join(", "));
        return Err(Error::Argument { operation: "rerun", message });
    };
    Recipe { name, told: attributes, inputs }.run()
}
