//! Prints the folder that has the stand-in under the name of the driver's library, for `LD_LIBRARY_PATH`.

fn main() {
    println!("{}", gradewise_fake_driver::folder());
}
