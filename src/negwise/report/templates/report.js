/* Draws each panel of each figure, and lets its link download the table. */
(async () => {
  const figures = charts.json("figures-data");
  document.querySelectorAll("figure .numbers").forEach((link, index) => {
    link.href = URL.createObjectURL(new Blob([figures[index].csv], { type: "text/csv" }));
  });
  for (const place of document.querySelectorAll(".panel")) {
    const figure = figures[place.dataset.figure];
    await charts.draw(place, { ...figure.panels[place.dataset.panel], datasets: { rows: figure.csv } });
  }
  document.body.dataset.drawn = "yes";
})();
