// In the head, before Gradio's own scripts. Gradio's loading screen goes on asking for an animation
// frame after each one once it has been taken off the page (6.31, StatusTracker), and the browser
// then renders the page sixty times a second though nothing changes. It gets few frames instead;
// its seconds, where it still shows them, count in steps. Nothing cancels what it asks for.
{
  const BETWEEN_MILLISECONDS = 500;
  const frame = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) => {
    if (!new Error().stack?.includes("/statustracker-")) return frame(callback);
    return setTimeout(() => frame(callback), BETWEEN_MILLISECONDS);
  };
}
