// Runs a package of AOTInductor without Python: load_package PACKAGE f|d INPUT OUTPUT SIZES...
// INPUT holds the numbers of the only input, of these sizes; OUTPUT receives those of the first result.

#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

int main(int count, char** arguments) {
  if (count < 6) return 2;
  torch::inductor::AOTIModelPackageLoader loader(arguments[1]);
  std::vector<std::int64_t> sizes;
  for (int index = 5; index < count; ++index) sizes.push_back(std::stoll(arguments[index]));
  at::Tensor input = at::empty(sizes, arguments[2][0] == 'd' ? at::kDouble : at::kFloat);
  std::ifstream source(arguments[3], std::ios::binary);
  source.read(static_cast<char*>(input.mutable_data_ptr()), static_cast<std::streamsize>(input.nbytes()));
  if (!source) return 3;
  at::Tensor output = loader.run({input})[0].contiguous();
  std::ofstream sink(arguments[4], std::ios::binary);
  sink.write(static_cast<const char*>(output.const_data_ptr()), static_cast<std::streamsize>(output.nbytes()));
  return sink ? 0 : 4;
}
