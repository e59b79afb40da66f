//! Moves a point along a screw with a motor of projective geometric algebra: a quarter turn about a vertical axis
//! through (1, 0, 0), while rising by 2. Then takes the motion apart again.

use gradewise_core::{Motor3, Multivector, Pga3, Result, pga3};

fn main() -> Result<()> {
    let [e1, e2, ..] = Multivector::<Pga3, f64>::generators::<4>();
    let turn = Motor3::from_plane_angle(&(e1 * e2), std::f64::consts::FRAC_PI_2)?;
    let shift = Motor3::translation([1.0, 0.0, 0.0]);
    let rise = Motor3::translation([0.0, 0.0, 2.0]);
    let screw = rise * shift * turn * shift.inverse();

    println!("motor       {screw:.4}");
    println!("logarithm   {:.4}", screw.log()?);
    let start = pga3::point([2.0, 0.0, 0.0]);
    for step in 0..=4 {
        let t = f64::from(step) / 4.0;
        let [x, y, z] = pga3::coordinates(&screw.powf(t)?.apply(&start))?;
        println!("at {t:.2}     ({x:.4}, {y:.4}, {z:.4})");
    }

    // The same point as the intersection of three planes, and the line through start and end.
    let end = screw.apply(&start);
    let line = start.regressive_product(&end);
    println!("line        {line:.4}");
    let floor = pga3::plane(0.0, 0.0, 1.0, -1.0);
    let [x, y, z] = pga3::coordinates(&floor.outer_product(&line))?;
    println!("at height 1 ({x:.4}, {y:.4}, {z:.4})");
    Ok(())
}
