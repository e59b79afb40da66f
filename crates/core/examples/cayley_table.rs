//! Prints the Cayley table of a signature, its grade paths, and how sparse it is.
//!
//! ```text
//! cargo run -p gradewise-core --example cayley_table -- 3,0,1
//! ```

use gradewise_core::{Algebra, Result, Signature};

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(2);
    }
}

fn run() -> Result<()> {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "2,0,0".to_owned());
    let algebra = Algebra::new(argument.parse::<Signature>()?)?;
    let blades = algebra.blade_count();

    println!("{}: row times column", algebra.signature());
    let width = algebra.dimension() + 3;
    print!("{:width$} │", "");
    for right in 0..blades {
        print!("{:>width$}", algebra.blade_name(right));
    }
    println!();
    for left in 0..blades {
        print!("{:>width$} │", algebra.blade_name(left));
        for right in 0..blades {
            let entry = match algebra.blade_product(left, right) {
                (_, 0) => "0".to_owned(),
                (out, sign) => format!("{}{}", if sign < 0 { "−" } else { "" }, algebra.blade_name(out)),
            };
            print!("{entry:>width$}");
        }
        println!();
    }

    println!("\n{} of {} entries are not zero", algebra.terms().len(), blades.pow(3));
    println!("{} grade paths (left·right→out):", algebra.paths().len());
    for path in algebra.paths() {
        print!(" {}·{}→{}", path.left, path.right, path.out);
    }
    println!();
    Ok(())
}
