// What is wrong with a page in a frame, as it is laid out there, as an attribute of the body around the frame: text that is cut off or outside of the window, and text whose
// contrast with what is behind it is less than WCAG 2.1 asks for at level AA.
{
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) faults.push(`scrolls across: ${root.scrollWidth} > ${innerWidth}`);
  const numbers = (color) => (color.match(/[\d.]+/g) || []).map(Number);
  const luminance = (color) => {
    const [r, g, b] = numbers(color).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      const alpha = numbers(color)[3];
      if (alpha === undefined || alpha === 1) return color;
    }
    return "rgb(255, 255, 255)";
  };
  let seen = 0;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode, element = node.parentElement, text = node.textContent.trim();
    if (!text || ["SCRIPT", "STYLE", "NOSCRIPT", "OPTION"].includes(element.tagName)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width === 0) continue;
    seen += 1;
    const name = `${element.tagName} "${text.slice(0, 30)}"`;
    let scrolls = false;
    for (let at = element; at && at !== root; at = at.parentElement) {
      const overflow = getComputedStyle(at).overflowX, edge = at.getBoundingClientRect();
      // What an element scrolls can be reached.
      if (["auto", "scroll"].includes(overflow)) scrolls = true;
      const cuts = ["hidden", "clip"].includes(overflow) && !scrolls;
      if (cuts && (box.right > edge.right + 1 || box.left < edge.left - 1)) faults.push(`cut off: ${name}`);
    }
    if (!scrolls && (box.left < -1 || box.right > innerWidth + 1)) faults.push(`outside: ${name} ${box.left} to ${box.right}`);
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const [low, high] = [luminance(style.color), luminance(behind(element))].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    const asked = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (contrast < asked) faults.push(`contrast ${contrast.toFixed(2)}: ${name}`);
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  parent.document.body.setAttribute("data-probe", JSON.stringify({ width: innerWidth, dark, seen, faults }));
}
