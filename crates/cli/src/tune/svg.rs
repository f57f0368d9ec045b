//! SVG: the heat maps as a drawing, one below the other.
//!
//! Owns: the drawing.
//! Does not own: the file it goes into.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::Grid;
use crate::shared::units::readable;

/// The drawing as SVG.
///
/// # Errors
/// One sentence for the user.
pub(super) fn svg(grids: &[&Grid]) -> Result<String, String> {
    let mut text = String::new();
    let height = grids.iter().map(|grid| height_of(grid)).sum::<i32>().max(CELL.1);
    draw(&mut text, grids, height).map_err(|error| format!("failed to draw: {error}"))?;
    Ok(text)
}

fn draw(text: &mut String, grids: &[&Grid], height: i32) -> Result<(), Box<dyn std::error::Error>> {
    let columns = grids.iter().map(|grid| grid.depths.len()).max().unwrap_or(1) as i32;
    let width = LEFT + columns * CELL.0 + MARGIN;
    let root = SVGBackend::with_string(text, (width as u32, height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut top = 0;
    for grid in grids {
        draw_grid(&root, grid, top)?;
        top += height_of(grid);
    }
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_grid(root: &Area<'_>, grid: &Grid, top: i32) -> Result<(), Box<dyn std::error::Error>> {
    let label = |size: i32, horizontal: HPos| {
        ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(horizontal, VPos::Center))
    };
    let title = format!("{}, MiB/s by request size (down) and requests in flight (across)", grid.title());
    root.draw(&Text::new(title, (MARGIN, top + MARGIN), label(16, HPos::Left)))?;
    let rows = grid.rows();
    let highest = rows.iter().flatten().flatten().copied().fold(0.0, f64::max);
    for (column, depth) in grid.depths.iter().enumerate() {
        let (x, y) = corner(0, column, top);
        root.draw(&Text::new(depth.to_string(), (x + CELL.0 / 2, y - 10), label(14, HPos::Center)))?;
    }
    for (row, rates) in rows.iter().enumerate() {
        let (x, y) = corner(row, 0, top);
        let size = readable(grid.sizes_bytes[row]);
        root.draw(&Text::new(size, (x - 8, y + CELL.1 / 2), label(14, HPos::Right)))?;
        for (column, rate) in rates.iter().enumerate() {
            let (x, y) = corner(row, column, top);
            let Some(rate) = rate else { continue };
            let share = if highest > 0.0 { rate / highest } else { 0.0 };
            let area = [(x + 1, y + 1), (x + CELL.0 - 1, y + CELL.1 - 1)];
            root.draw(&Rectangle::new(area, colour(share).filled()))?;
            let centre = (x + CELL.0 / 2, y + CELL.1 / 2);
            root.draw(&Text::new(format!("{rate:.0}"), centre, label(14, HPos::Center)))?;
        }
    }
    if let Some((row, column)) = grid.chosen_at() {
        let (x, y) = corner(row, column, top);
        root.draw(&Rectangle::new([(x, y), (x + CELL.0, y + CELL.1)], BLACK.stroke_width(3)))?;
    }
    Ok(())
}

fn corner(row: usize, column: usize, top: i32) -> (i32, i32) {
    (LEFT + column as i32 * CELL.0, top + HEAD + row as i32 * CELL.1)
}

fn height_of(grid: &Grid) -> i32 {
    HEAD + grid.sizes_bytes.len() as i32 * CELL.1 + MARGIN
}

/// Colours from nearly white to blue, of one hue, so that the order shows with every kind of colour vision.
fn colour(share: f64) -> RGBColor {
    // Rates near the best are what differs in interesting ways.
    let depth = share.clamp(0.0, 1.0).powi(2);
    let mixed = |light: f64, dark: f64| (light + (dark - light) * depth) as u8;
    RGBColor(mixed(245.0, 90.0), mixed(248.0, 160.0), mixed(252.0, 230.0))
}

const CELL: (i32, i32) = (84, 30);

const LEFT: i32 = 90;

const MARGIN: i32 = 20;

/// Title and depths.
const HEAD: i32 = 66;
